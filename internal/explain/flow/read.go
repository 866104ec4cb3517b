package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxPage bounds the size of one page of metrics, in bytes. An agent passes on 64 MiB of Envoy's.
const maxPage = 96 << 20

// Pages reads the metrics pages of agents. An address is HOST:PORT, or a URL. Pages that do not answer are missing: the others count. It is an error if
// none answers.
func Pages(ctx context.Context, client *http.Client, addresses []string) (*Sample, []string, error) {
	s := &Sample{at: time.Now(), series: map[string]series{}}
	lists, errs := make([]model.Vector, len(addresses)), make([]error, len(addresses))
	var all sync.WaitGroup
	slots := make(chan struct{}, 50)
	for i, address := range addresses {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			lists[i], errs[i] = page(ctx, client, address)
		})
	}
	all.Wait()
	var missing []string
	for i, address := range addresses {
		if errs[i] != nil {
			missing = append(missing, errs[i].Error())
			continue
		}
		s.add(address, lists[i])
	}
	if len(missing) > 0 && len(missing) == len(addresses) {
		return nil, nil, fmt.Errorf("no agent answers: %w", errors.Join(errs...))
	}
	return s, missing, nil
}

// page reads one page.
func page(ctx context.Context, client *http.Client, address string) (model.Vector, error) {
	at := address
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	u, err := url.Parse(at)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is not the address of an agent; write HOST:PORT", address)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/stats/prometheus"
	}
	body, err := fetch(ctx, client, u)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list, err := parse(io.LimitReader(body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	return list, nil
}

func fetch(ctx context.Context, client *http.Client, u *url.URL) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", u, resp.Status)
	}
	return resp.Body, nil
}

// parse reads metrics in the text format of Prometheus.
func parse(r io.Reader) (model.Vector, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("these are no metrics of Prometheus: %w", err)
	}
	var list model.Vector
	for name, family := range families {
		if !slices.ContainsFunc(names(), func(n string) bool { return strings.TrimSuffix(n, "_bucket") == name }) {
			continue
		}
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, family)
		if err != nil {
			return nil, fmt.Errorf("the metric %s: %w", name, err)
		}
		list = append(list, samples...)
	}
	return list, nil
}

// Prometheus reads the metrics that a Prometheus server has collected from the agents of a mesh. address is its URL.
func Prometheus(ctx context.Context, client *http.Client, address string) (*Sample, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a Prometheus server; write http://HOST:PORT", address)
	}
	s := &Sample{at: time.Now(), series: map[string]series{}}
	u := base.JoinPath("/api/v1/query")
	u.RawQuery = url.Values{"query": {`{__name__=~"` + strings.Join(names(), "|") + `"}`}}.Encode()
	body, err := fetch(ctx, client, u)
	if err != nil {
		return nil, fmt.Errorf("the Prometheus server: %w", err)
	}
	defer body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			ResultType string       `json:"resultType"`
			Result     model.Vector `json:"result"`
		}
	}
	if err := json.NewDecoder(io.LimitReader(body, maxPage)).Decode(&answer); err != nil || answer.Data.ResultType != "vector" {
		return nil, fmt.Errorf("%s is not a Prometheus server: its answer is no vector (%s)", address, firstOf(answer.Error, err))
	}
	s.add("", answer.Data.Result)
	return s, nil
}

func firstOf(text string, err error) string {
	if text != "" || err == nil {
		return text
	}
	return err.Error()
}
