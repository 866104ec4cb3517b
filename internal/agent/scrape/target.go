package scrape

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Target is a port and a path at which the application serves metrics.
type Target struct {
	Port uint16
	Path string
}

// String returns the port and path.
func (t Target) String() string { return fmt.Sprintf("%d%s", t.Port, t.Path) }

const (
	maxTargets  = 32
	defaultPort = 80
	defaultPath = "/metrics"
)

// Parse reads ISTIO_PROMETHEUS_ANNOTATIONS, in which the injector keeps the pod's own annotations about metrics. reserved are ports
// of the proxy with the purpose of each: to scrape them would be a loop, or would give Envoy's metrics twice. Remarks name settings without effect.
func Parse(text string, reserved map[uint16]string) (targets []Target, remarks []string, err error) {
	var annotations struct {
		Scrape  string
		Path    string
		Port    portText
		Targets []struct {
			Path string
			Port portText
		}
	}
	if err := json.Unmarshal([]byte(text), &annotations); err != nil {
		return nil, nil, fmt.Errorf("it is not a JSON object with scrape, path, port and targets: %w", err)
	}
	if annotations.Scrape == "false" {
		return nil, nil, nil
	}
	type pair struct {
		port portText
		path string
	}
	given := []pair{{annotations.Port, annotations.Path}}
	if len(annotations.Targets) > 0 {
		given = nil // the list replaces the single target
		for _, t := range annotations.Targets {
			given = append(given, pair{t.Port, t.Path})
		}
	}
	var errs []error
	for _, g := range given {
		t, err := newTarget(string(g.port), g.path)
		what, taken := reserved[t.Port]
		switch {
		case err != nil:
			errs = append(errs, err)
		case taken:
			remarks = append(remarks, fmt.Sprintf("the target %s has no effect: %s has that port; set prometheus.io/port to the application's", t, what))
		case slices.Contains(targets, t):
		case len(targets) == maxTargets:
			errs = append(errs, fmt.Errorf("it has %d targets; %d are allowed", len(given), maxTargets))
			return nil, nil, errors.Join(errs...)
		default:
			targets = append(targets, t)
		}
	}
	return targets, remarks, errors.Join(errs...)
}

func newTarget(port, path string) (Target, error) {
	t := Target{Port: defaultPort, Path: path}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return t, fmt.Errorf("port: %q is not a number between 1 and 65535", port)
		}
		t.Port = uint16(n)
	}
	switch {
	case path == "":
		t.Path = defaultPath
	case !strings.HasPrefix(path, "/"):
		t.Path = "/" + path
	}
	if _, err := url.ParseRequestURI(t.Path); err != nil {
		return t, fmt.Errorf("path: %w", err)
	}
	return t, nil
}

// portText is a port as JSON text or number.
type portText string

// UnmarshalJSON reads a text or a number.
func (p *portText) UnmarshalJSON(b []byte) error {
	*p = portText(bytes.Trim(b, `"`))
	return nil
}
