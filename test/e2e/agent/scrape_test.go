package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestScrape: one scrape has the metrics of Envoy, of the application and of the agent, and the failed sources are reported.
func TestScrape(t *testing.T) {
	b := newBed(t)
	b.serve()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/garbage":
			fmt.Fprint(w, "<html>\nsome_metric 1\n")
		case strings.HasPrefix(r.Header.Get("Accept"), "application/openmetrics-text"):
			w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
			fmt.Fprint(w, "# TYPE orders counter\norders_total 4 # {trace_id=\"abc\"} 1\n# EOF\n")
		default:
			fmt.Fprint(w, "# TYPE orders_total counter\norders_total 4\n")
		}
	}))
	defer app.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(app.URL, "http://"), ":")
	o := options()
	o.Env = []string{fmt.Sprintf(`ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","targets":[{"port":"%s","path":""},{"port":%[1]q,"path":"/garbage"},{"port":"1"}]}`, port)}
	a := b.ready(o, testbed.Node{})
	b.answers() // so that Envoy has something to count

	code, body, contentType := b.page(a.StatusPort, "/stats/prometheus", "")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil || code != http.StatusOK || !strings.HasPrefix(contentType, string(expfmt.FmtText)) {
		t.Fatalf("%d %s %v", code, contentType, err)
	}
	for _, name := range []string{"envoy_server_live", "envoy_cluster_upstream_rq_total", "envoy_cluster_upstream_rq_time", "orders_total", "some_metric", "pilot_agent_secrets"} {
		if len(families[name].GetMetric()) == 0 {
			t.Errorf("there is no %s in\n%.5000s", name, body)
		}
	}
	for _, want := range []string{
		`pilot_agent_scrape_target_up{target="envoy"} 1`, fmt.Sprintf(`pilot_agent_scrape_target_up{target="%s/metrics"} 1`, port),
		fmt.Sprintf(`pilot_agent_scrape_target_up{target="%s/garbage"} 0`, port), `pilot_agent_scrape_target_up{target="1/metrics"} 0`,
		`istio_agent_scrape_failures_total{type="application"} 2`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}

	_, body, contentType = b.page(a.StatusPort, "/stats/prometheus", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
	if !strings.HasPrefix(contentType, "application/openmetrics-text") || !strings.HasSuffix(body, "\n# EOF\n") || strings.Count(body, "# EOF\n") != 1 ||
		!strings.Contains(body, `orders_total 4 # {trace_id="abc"} 1`) || !strings.Contains(body, "# TYPE envoy_cluster_upstream_rq_time histogram\n") {
		t.Errorf("%s\n%.5000s", contentType, body)
	}
}
