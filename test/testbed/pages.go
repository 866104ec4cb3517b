package testbed

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Pages are the pages of a control plane, wherever it runs.
type Pages struct {
	HTTP   string       // address of /ready, /metrics, /debug
	Client *http.Client // http.DefaultClient if nil
}

// Get reads a page of the control plane.
func (p Pages) Get(ctx context.Context, path string) (string, error) {
	return get(ctx, cmp.Or(p.Client, http.DefaultClient), "http://"+p.HTTP+path)
}

// Metric sums the samples of a Prometheus metric whose labels contain all of the given texts (type="cds").
func (p Pages) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	page, err := p.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || series != name && !strings.HasPrefix(series, name+"{") || !containsAll(series, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", series, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s with %q", name, labels)
	}
	return sum, nil
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// get reads a page and fails on any status but 200.
func get(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status + ": " + strings.TrimSpace(string(body)))
	}
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", url, err)
	}
	return string(body), nil
}
