package scrape

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	openMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	// prometheusAccepts is the Accept header of Prometheus.
	prometheusAccepts = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)

// application serves metrics in several ways.
func application(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/text":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(w, "# TYPE app_requests_total counter\napp_requests_total{agent=%q,timeout=%q} 5\n", r.UserAgent(), r.Header.Get(timeoutHeader))
	case "/open":
		if !strings.HasPrefix(r.Header.Get("Accept"), "application/openmetrics-text") {
			http.Error(w, "only OpenMetrics", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", openMetricsType)
		fmt.Fprint(w, "# TYPE orders counter\norders_total 4 # {trace_id=\"abc\"} 1\n# EOF\n")
	case "/hang":
		<-r.Context().Done()
	case "/half":
		fmt.Fprint(w, "half 1\nother_half{a=\"")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "/garbage":
		fmt.Fprint(w, "\x00\x01 garbage\n<html>\ngood_metric 1\n"+strings.Repeat("x", 1<<20)+"\n")
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "zipped 1\n")
		_ = z.Close()
	case "/large":
		out := bufio.NewWriter(w)
		for i := range 200_000 { // more than 10 MB
			fmt.Fprintf(out, "large{number=\"%d\",padding=\"..............................\"} 1\n", i)
		}
		_ = out.Flush()
	case "/bomb":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		row := "bomb{padding=\"" + strings.Repeat(".", 4000) + "\"} 1\n"
		for range 2 * maxBytes / len(row) {
			_, _ = z.Write([]byte(row))
		}
		_ = z.Close()
	case "/away":
		http.Redirect(w, r, "http://192.0.2.1/metrics", http.StatusFound)
	default:
		http.Error(w, "broken", http.StatusInternalServerError)
	}
}

// envoy answers as Envoy's admin interface.
func envoy(_ context.Context, method, path string) (*http.Response, error) {
	body := fmt.Sprintf("# TYPE envoy_server_live gauge\nenvoy_server_live{asked=%q} 1\n", method+" "+path)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// port starts a server and returns its port.
func port(t *testing.T, l net.Listener) uint16 {
	t.Helper()
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(application), ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(s.Close)
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Skip(err)
	}
	return l
}

// bed is a scrape handler in a test server.
type bed struct {
	*testing.T
	url    string
	client *http.Client
}

func newBed(t *testing.T, o Options) *bed {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	o.Own = func() string { return "# TYPE agent_own counter\nagent_own 1\n" }
	s := httptest.NewServer(Handler(o))
	t.Cleanup(s.Close)
	return &bed{T: t, url: s.URL + "/stats/prometheus", client: s.Client()}
}

// scrape returns the answer, and the type of its content.
func (b *bed) scrape(query, accept, timeout string) (body, contentType string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.url+query, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header = http.Header{"Accept": {accept}, "User-Agent": {"Prometheus/3"}, timeoutHeader: {timeout}}
	resp, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("%d %v", resp.StatusCode, err)
	}
	return string(text), resp.Header.Get("Content-Type")
}

func (b *bed) wants(got map[string]float64, want map[string]float64) {
	b.Helper()
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			b.Errorf("%s is %v (%v), want %v", name, v, ok, value)
		}
	}
	if b.Failed() {
		b.Logf("%.5000v", got)
	}
}

// TestTargets: a target that fails hides nothing of the others, and is reported.
func TestTargets(t *testing.T) {
	p := port(t, listen(t, "127.0.0.1:0"))
	var targets []Target
	for _, path := range []string{"/hang", "/half", "/text", "/open", "/garbage", "/gzip", "/fail", "/away"} {
		targets = append(targets, Target{Port: p, Path: path})
	}
	targets = append(targets, Target{Port: 1, Path: "/closed"})
	b := newBed(t, Options{Envoy: envoy, Targets: targets})
	began := time.Now()
	body, contentType := b.scrape("?usedonly", "text/plain", "1")
	if took := time.Since(began); took > 30*time.Second || !strings.HasPrefix(contentType, "text/plain; version=0.0.4") {
		t.Errorf("%v, %s", took, contentType)
	}
	up := func(path string) string { return fmt.Sprintf(`pilot_agent_scrape_target_up{target="%d%s"}`, p, path) }
	b.wants(parse(t, body), map[string]float64{
		`envoy_server_live{asked="GET /stats/prometheus?usedonly"}`: 1,
		`app_requests_total{agent="Prometheus/3", timeout="1"}`:     5,
		`half`: 1, `good_metric`: 1, `zipped`: 1, `agent_own`: 1,
		`pilot_agent_scrape_target_up{target="envoy"}`:    1,
		`pilot_agent_scrape_target_up{target="1/closed"}`: 0,
		up("/hang"): 0, up("/half"): 0, up("/text"): 1, up("/open"): 0, up("/garbage"): 0, up("/gzip"): 1, up("/fail"): 0, up("/away"): 0,
		fmt.Sprintf(`pilot_agent_scrape_target_invalid_lines{target="%d/garbage"}`, p): 3,
		`istio_agent_scrapes_total`: 1, `istio_agent_scrape_failures_total{type="application"}`: 7, `istio_agent_scrape_failures_total{type="envoy"}`: 0,
	})
	// The next one on the same connection is answered as well, later than the first was allowed to take.
	<-time.After(time.Until(began.Add(1100 * time.Millisecond)))
	body, _ = b.scrape("", "text/plain", "1")
	b.wants(parse(t, body), map[string]float64{`istio_agent_scrapes_total`: 2, `istio_agent_scrape_failures_total{type="application"}`: 14})
}

// TestOpenMetrics: the answer is OpenMetrics if the client and the application support it.
func TestOpenMetrics(t *testing.T) {
	p := port(t, listen(t, "127.0.0.1:0"))
	for _, c := range []struct {
		targets []Target
		accept  string
		want    string
		has     []string
	}{
		{[]Target{{p, "/open"}, {p, "/text"}}, prometheusAccepts, openMetricsType, []string{
			`orders_total 4 # {trace_id="abc"} 1`, "# TYPE app_requests counter\napp_requests_total{", "\nagent_own 1\n"}},
		{[]Target{{p, "/text"}}, prometheusAccepts, "text/plain; version=0.0.4; charset=utf-8", []string{"# TYPE app_requests_total counter\n"}},
		{[]Target{{p, "/open"}}, "text/plain", "text/plain; version=0.0.4; charset=utf-8", []string{fmt.Sprintf(`pilot_agent_scrape_target_up{target="%d/open"} 0`, p)}},
		{nil, prometheusAccepts, "text/plain; version=0.0.4; charset=utf-8", []string{"envoy_server_live"}},
		{[]Target{{p, "/hang"}, {p, "/open"}}, prometheusAccepts, openMetricsType, []string{"orders_total 4"}},
	} {
		body, contentType := newBed(t, Options{Envoy: envoy, Targets: c.targets}).scrape("", c.accept, "2")
		if contentType != c.want {
			t.Errorf("%v, %s: %s", c.targets, c.accept, contentType)
		}
		if c.want == openMetricsType && (!strings.HasSuffix(body, "\n# EOF\n") || strings.Count(body, "# EOF") != 1) {
			t.Errorf("the end is not there, or not at the end:\n%s", body)
		}
		for _, has := range c.has {
			if !strings.Contains(body, has) {
				t.Errorf("%v, %s: %q is not in\n%s", c.targets, c.accept, has, body)
			}
		}
	}
}

// TestNoEnvoy: the application's metrics do not depend on Envoy.
func TestNoEnvoy(t *testing.T) {
	p := port(t, listen(t, "[::1]:0")) // an application on IPv6 only
	down := func(context.Context, string, string) (*http.Response, error) {
		return nil, errors.New("connection refused")
	}
	b := newBed(t, Options{Envoy: down, Targets: []Target{{p, "/text"}}})
	body, _ := b.scrape("", "", "x")
	b.wants(parse(t, body), map[string]float64{
		`app_requests_total{agent="Prometheus/3", timeout="x"}`: 5, `pilot_agent_scrape_target_up{target="envoy"}`: 0, `istio_agent_scrape_failures_total{type="envoy"}`: 1,
	})
}

// TestLarge: an answer of more than ten megabytes is passed on, one without end is cut, and neither is kept in memory.
func TestLarge(t *testing.T) {
	p := port(t, listen(t, "127.0.0.1:0"))
	b := newBed(t, Options{Envoy: envoy, Targets: []Target{{p, "/large"}, {p, "/bomb"}}})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(timeoutHeader, "100")
	resp, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines, bombs, peak := 0, 0, uint64(0)
	told := map[string]bool{}
	for in := bufio.NewScanner(resp.Body); in.Scan(); lines++ {
		if lines%100_000 == 0 {
			runtime.ReadMemStats(&after)
			peak = max(peak, after.HeapInuse-min(after.HeapInuse, before.HeapInuse))
		}
		switch text := in.Text(); {
		case strings.HasPrefix(text, "bomb"):
			bombs++
		case strings.Contains(text, "scrape_target_up") || strings.Contains(text, "scrape_target_samples"):
			told[text] = true
		}
	}
	for _, want := range []string{fmt.Sprintf(`pilot_agent_scrape_target_samples{target="%d/large"} 200000`, p), fmt.Sprintf(`pilot_agent_scrape_target_up{target="%d/bomb"} 0`, p)} {
		if !told[want] {
			t.Errorf("%s is missing; there is %v", want, told)
		}
	}
	if bombs == 0 || bombs > maxBytes/4000 || peak > 20<<20 {
		t.Errorf("%d lines of the answer without end, %d MiB of memory", bombs, peak>>20)
	}
}

// TestTooMany: scrapes beyond the limit are refused.
func TestTooMany(t *testing.T) {
	h := &handler{running: make(chan struct{})}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestDropped checks that the metric says how many values Envoy did not record, that the log has one line per type until Envoy is started again,
// and that neither a scrape of a part nor a metric of the application of the same name changes that. A page that is larger than what an application may
// have is not cut off.
func TestDropped(t *testing.T) {
	var log strings.Builder
	page := ""
	h := Handler(Options{
		Envoy: func(context.Context, string, string) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(page))}, nil
		},
		Own: func() string { return "" }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, step := range []struct {
		page, query     string
		counter, series string // what the metric says of both types; empty for no metric
		lines           int
	}{
		{"a 1\n", "", "", "", 0},
		{"envoy_server_stats_overflow_counter 0\nenvoy_server_stats_overflow_histogram 0\n", "", "0", "0", 0},
		{"# TYPE envoy_server_stats_overflow_counter counter\nenvoy_server_stats_overflow_counter{} 10\nenvoy_server_stats_overflow_histogram{} 0\n", "", "10", "0", 1},
		{"envoy_server_stats_overflow_counter 12\nenvoy_server_stats_overflow_histogram 7\nenvoy_server_stats_overflow_other 9\n", "", "12", "7", 2},
		{"a 1\n", "?filter=a", "", "", 2},
		{"envoy_server_stats_overflow_counter 13\nenvoy_server_stats_overflow_histogram 8\n", "", "13", "8", 2},
		{"envoy_server_stats_overflow_counter 0\nenvoy_server_stats_overflow_histogram 0\n", "", "0", "0", 2},
		{"envoy_server_stats_overflow_counter 1\nenvoy_server_stats_overflow_histogram 0\n" + strings.Repeat("large{a=\"b\"} 1\n", maxBytes/14), "", "1", "0", 3},
	} {
		page = step.page
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/stats/prometheus"+step.query, nil))
		want := ""
		if step.counter != "" {
			want = "# TYPE pilot_agent_metrics_dropped_total counter\npilot_agent_metrics_dropped_total{type=\"counter\"} " + step.counter +
				"\npilot_agent_metrics_dropped_total{type=\"histogram\"} " + step.series + "\n"
		}
		got := rec.Body.String()
		if !strings.Contains(got, want) || strings.Contains(got, "pilot_agent_metrics_dropped_total") != (want != "") {
			t.Errorf("Envoy says %.100q:\n%.1000s\n%s", step.page, got, got[max(0, len(got)-1000):])
		}
		if large := strings.Count(got, "large{"); large != strings.Count(step.page, "large{") {
			t.Errorf("%d of %d lines of Envoy arrive", large, strings.Count(step.page, "large{"))
		}
		if n := strings.Count(log.String(), "does not record further ones"); n != step.lines {
			t.Errorf("after %.100q there are %d lines, want %d:\n%s", step.page, n, step.lines, log.String())
		}
	}
}
