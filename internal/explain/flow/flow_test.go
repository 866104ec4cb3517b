package flow

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the files in testdata from what the code does")

const before = `
# TYPE istio_requests_total counter
istio_requests_total{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store",destination_service="reviews.store.svc.cluster.local",request_protocol="http",response_code="200"} 100
istio_requests_total{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v2",destination_workload_namespace="store",destination_service="reviews.store.svc.cluster.local",request_protocol="http",response_code="200"} 500
`

// after has, one after the other: plain growth; an Envoy that was started again; failures of HTTP and of gRPC; the server's report of the same requests,
// which is left out; a client without a proxy; a service outside the mesh; connections that are not HTTP.
const after = `
# TYPE istio_requests_total counter
istio_requests_total{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store",destination_service="reviews.store.svc.cluster.local",request_protocol="http",response_code="200"} 190
istio_requests_total{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store",destination_service="reviews.store.svc.cluster.local",request_protocol="http",response_code="503"} 10
istio_requests_total{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v2",destination_workload_namespace="store",destination_service="reviews.store.svc.cluster.local",request_protocol="http",response_code="200"} 30
istio_requests_total{reporter="destination",source_workload="unknown",source_principal="spiffe://cluster.local/ns/store/sa/shop",destination_workload="reviews-v1",destination_workload_namespace="store",request_protocol="http",response_code="200"} 190
istio_requests_total{reporter="destination",source_workload="unknown",source_principal="unknown",destination_workload="shop",destination_workload_namespace="store",request_protocol="http",response_code="404"} 20
istio_requests_total{reporter="source",source_workload="reviews-v1",source_workload_namespace="store",destination_workload="ratings",destination_workload_namespace="score",request_protocol="grpc",grpc_response_status="14",response_code="200"} 5
istio_requests_total{reporter="source",source_workload="reviews-v1",source_workload_namespace="store",destination_workload="ratings",destination_workload_namespace="score",request_protocol="grpc",grpc_response_status="0",response_code="200"} 5
istio_requests_total{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="unknown",destination_service="api.example.com",request_protocol="http",response_code="200"} 1
# TYPE istio_request_duration_milliseconds histogram
istio_request_duration_milliseconds_bucket{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store",le="1"} 0
istio_request_duration_milliseconds_bucket{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store",le="10"} 80
istio_request_duration_milliseconds_bucket{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store",le="100"} 98
istio_request_duration_milliseconds_bucket{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store",le="+Inf"} 100
istio_request_duration_milliseconds_sum{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store"} 900
istio_request_duration_milliseconds_count{reporter="source",source_workload="shop",source_workload_namespace="store",destination_workload="reviews-v1",destination_workload_namespace="store"} 100
# TYPE istio_tcp_connections_opened_total counter
istio_tcp_connections_opened_total{reporter="source",source_workload="ratings",source_workload_namespace="score",destination_workload="db",destination_workload_namespace="score"} 10
# TYPE istio_tcp_sent_bytes_total counter
istio_tcp_sent_bytes_total{reporter="source",source_workload="ratings",source_workload_namespace="score",destination_workload="db",destination_workload_namespace="score"} 4000
# TYPE istio_tcp_received_bytes_total counter
istio_tcp_received_bytes_total{reporter="source",source_workload="ratings",source_workload_namespace="score",destination_workload="db",destination_workload_namespace="score"} 1000
`

func sample(t *testing.T, at int, text string) *Sample {
	t.Helper()
	list, err := parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &Sample{at: time.Unix(int64(at), 0), series: map[string]series{}}
	s.add("a", list)
	return s
}

// TestForms holds the forms of one answer: between shop and reviews-v1 there are 100 requests in 10 s, and 10 of them fail.
func TestForms(t *testing.T) {
	a := Between(sample(t, 0, before), sample(t, 10, after))
	for name, write := range map[string]func(*strings.Builder) error{
		"top.txt": func(b *strings.Builder) error { return a.Top(b) }, "edges.txt": func(b *strings.Builder) error { return a.EdgeTable(b) },
		"graph.txt": func(b *strings.Builder) error { return a.Graph(b) }, "graph.dot": func(b *strings.Builder) error { return a.Dot(b) },
		"graph.svg": func(b *strings.Builder) error { return a.SVG(b) }, "score.txt": func(b *strings.Builder) error { return a.Only("score").EdgeTable(b) },
	} {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(want) != b.String() {
			t.Errorf("%s differs (%v); run with -update and read the difference:\n%s", path, err, b.String())
		}
	}
}

// TestDropped: agents whose Envoys did not record all in between are named, with the sum of both types; an Envoy that was started again counts
// from zero.
func TestDropped(t *testing.T) {
	page := func(counters, histograms int) string {
		return fmt.Sprintf("# TYPE pilot_agent_metrics_dropped_total counter\npilot_agent_metrics_dropped_total{type=\"counter\"} %d\n"+
			"pilot_agent_metrics_dropped_total{type=\"histogram\"} %d\n", counters, histograms)
	}
	for _, c := range []struct {
		before, after string
		want          float64
	}{{page(0, 0), page(0, 0), 0}, {page(5, 5), page(5, 5), 0}, {page(5, 5), page(7, 10), 7}, {page(50, 50), page(2, 1), 3}, {"", page(2, 1), 3}, {page(1, 1), "", 0}} {
		var want []Dropped
		if c.want > 0 {
			want = []Dropped{{"a", c.want}}
		}
		if got := Between(sample(t, 0, c.before), sample(t, 10, c.after)).Dropped; !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestCircle: workloads that call each other, and themselves, have places of their own.
func TestCircle(t *testing.T) {
	x, y, z := Workload{Name: "x"}, Workload{Name: "y"}, Workload{Name: "z"}
	places, _, _ := Answer{Edges: []EdgeFlow{{Edge: Edge{x, y}}, {Edge: Edge{y, x}}, {Edge: Edge{y, z}}, {Edge: Edge{z, z}}}}.places()
	seen := map[place]bool{}
	for _, p := range places {
		seen[p] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d places for 3 workloads: %v", len(seen), places)
	}
}

// TestRead: pages that do not answer are missing, the others count, and it is an error if none does. A Prometheus server says the same as the agents.
func TestRead(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stats/prometheus" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(after))
	}))
	defer agent.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"istio_requests_total","reporter":"source","source_workload":"shop","destination_workload":"reviews-v1","response_code":"200","instance":"a"},"value":[1,"7"]}]}}`))
	}))
	defer server.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()

	empty := &Sample{series: map[string]series{}}
	s, missing, err := Pages(t.Context(), http.DefaultClient, []string{strings.TrimPrefix(agent.URL, "http://"), gone.URL})
	if err != nil || len(missing) != 1 || len(Between(empty, s).Edges) != 6 {
		t.Errorf("%d edges, missing %v, %v", len(Between(empty, s).Edges), missing, err)
	}
	if _, _, err := Pages(t.Context(), http.DefaultClient, []string{gone.URL, "no address at all"}); err == nil {
		t.Error("no agent answers, and that is no error")
	}
	s, err = Prometheus(t.Context(), http.DefaultClient, server.URL)
	if err != nil || len(Between(empty, s).Edges) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Prometheus(t.Context(), http.DefaultClient, agent.URL); err == nil {
		t.Error("an agent is taken for a Prometheus server")
	}
}

// FuzzParse: no page makes the reader panic, and every form can show the samples.
func FuzzParse(f *testing.F) {
	f.Add(before)
	f.Add(after)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse(strings.NewReader(text))
		if err != nil {
			return
		}
		s := &Sample{at: time.Unix(10, 0), series: map[string]series{}}
		s.add("a", list)
		a := Between(&Sample{at: time.Unix(0, 0), series: map[string]series{}}, s)
		var b strings.Builder
		for _, write := range []func() error{func() error { return a.Top(&b) }, func() error { return a.Graph(&b) }, func() error { return a.Dot(&b) }, func() error { return a.SVG(&b) }} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
