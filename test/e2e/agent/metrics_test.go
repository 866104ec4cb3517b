package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestMeshMetrics: a scrape of the agent has Istio's metrics under their names, and the tags say who called what. A Telemetry adds a tag,
// and its edit does not start the series again.
func TestMeshMetrics(t *testing.T) {
	b := newBed(t)
	mesh := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(mesh, []byte("defaultProviders: {metrics: [prometheus]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Discovery.Args = []string{"--meshConfig=" + mesh}
	b.tag("by_host", "request.host")
	b.serve()
	o := options()
	o.Env = []string{`ISTIO_METAJSON_LABELS={"app":"shopper","version":"v2"}`, "ISTIO_META_CLUSTER_ID=east"}
	a := b.ready(o, testbed.Node{})
	b.answers()
	want := map[string]string{
		"reporter": "source", "source_workload": "shopper", "source_workload_namespace": "shop", "source_app": "shopper", "source_version": "v2",
		"source_cluster": "east", "source_canonical_service": "shopper", "source_canonical_revision": "v2", "destination_service": webHost, "destination_service_namespace": "shop",
		"destination_workload_namespace": "shop", "destination_app": "unknown", "request_protocol": "http", "response_code": "200",
		"response_flags": "-", "connection_security_policy": "unknown", "by_host": webHost,
	}
	first := b.counted(a, want, 1)
	for _, name := range []string{"istio_request_duration_milliseconds", "istio_request_bytes", "istio_response_bytes"} {
		b.await(name, func(context.Context) error {
			if _, body, _ := b.page(a.StatusPort, "/stats/prometheus", ""); !strings.Contains(body, "# TYPE "+name+" histogram\n") {
				return fmt.Errorf("there is no histogram %s", name)
			}
			return nil
		})
	}
	if _, body, _ := b.page(a.MetricsPort, "/stats/prometheus", ""); !strings.Contains(body, "\nistio_requests_total{") || strings.Contains(body, "envoy_istio_") ||
		!strings.Contains(body, "\nenvoy_server_live") || strings.Contains(body, "pilot_agent_") {
		t.Errorf("the listener of Envoy has other names than Istio's, or metrics that are not of Envoy:\n%.5000s", body)
	}

	delete(want, "by_host")
	b.tag("other", "request.method")
	b.await("the other tag", func(ctx context.Context) error {
		if _, err := b.get(ctx); err != nil {
			return err
		}
		if _, body, _ := b.page(a.StatusPort, "/stats/prometheus", ""); !strings.Contains(body, `other="GET"`) {
			return fmt.Errorf("no series has the other tag")
		}
		return nil
	})
	want["by_host"] = webHost
	if again := b.counted(a, want, 1); again < first {
		t.Errorf("a series went from %v to %v when its listener changed", first, again)
	}
}

// TestDroppedMetrics: when clients choose the values of a tag, Envoy keeps a bounded number of series; the agent says how many values are lost,
// and its log that there are some.
func TestDroppedMetrics(t *testing.T) {
	b := newBed(t)
	b.Discovery.Args = []string{"--meshConfig=" + write(t, "mesh.yaml", "defaultProviders: {metrics: [prometheus]}\n")}
	if _, err := b.Write("telemetry.yaml", `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: all, namespace: istio-system}
spec:
  metrics:
  - overrides: [{match: {metric: ALL_METRICS}, tagOverrides: {path: {value: request.url_path}}}]
`); err != nil {
		t.Fatal(err)
	}
	b.serve()
	a := b.ready(options(), testbed.Node{})
	b.answers()
	lost := func() (n float64) { // without a parser, because the page is large
		_, body, _ := b.page(a.StatusPort, "/stats/prometheus", "")
		for line := range strings.SplitSeq(body, "\n") {
			if _, value, ok := strings.Cut(line, " "); ok && strings.HasPrefix(line, "pilot_agent_metrics_dropped_total{") {
				one, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				n += one
			}
		}
		return n
	}
	if n := lost(); n != 0 {
		t.Errorf("%v values are lost before there are many series", n)
	}
	const requests = 1800 // with three histograms each, and 5,000 are kept
	for i := range requests {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/%d", testbed.Loopback(b.port), i), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = webHost
		resp, err := b.client.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.await("lost values", func(context.Context) error {
		if n := lost(); n == 0 || n > 3*requests {
			return fmt.Errorf("%v of them", n)
		}
		return nil
	})
	b.says(a, "does not record further ones")
	_, page, _ := b.page(a.StatusPort, "/stats/prometheus", "")
	if len(page) < 64<<20 || !strings.Contains(page, `pilot_agent_scrape_target_up{target="envoy"} 1`) {
		t.Errorf("the page of %d MiB is not whole", len(page)>>20)
	}
}

// tag makes a Telemetry add a tag to the number of requests.
func (b *bed) tag(name, value string) {
	b.Helper()
	if _, err := b.Write("telemetry.yaml", fmt.Sprintf(`apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: all, namespace: istio-system}
spec:
  metrics:
  - overrides: [{match: {metric: REQUEST_COUNT}, tagOverrides: {%s: {value: %s}}}]
`, name, value)); err != nil {
		b.Fatal(err)
	}
}

// counted waits for a series of the number of requests that has some tags and at least a value, and returns the value.
func (b *bed) counted(a *testbed.Agent, tags map[string]string, least float64) (value float64) {
	b.Helper()
	b.await("a series", func(context.Context) error {
		code, body, _ := b.page(a.StatusPort, "/stats/prometheus", "")
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(body))
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("status %d: %w", code, err)
		}
		var closest string
		for _, m := range families["istio_requests_total"].GetMetric() {
			has, differ := map[string]string{}, ""
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			for name, want := range tags {
				if has[name] != want {
					differ += " " + name + "=" + strconv.Quote(has[name])
				}
			}
			if value = m.GetCounter().GetValue(); differ == "" && value >= least {
				return nil
			}
			closest += fmt.Sprintf("\n%v:%s", value, differ)
		}
		return fmt.Errorf("no series has the tags; what differs in each:%s", closest)
	})
	return value
}
