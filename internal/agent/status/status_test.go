package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"github.com/pilotmesh/pilot/internal/agent/relay"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an Envoy and its life.
type world struct {
	notReady  error
	leaving   bool
	serving   bool
	replacing bool
	refused   string
	restart   func()
	local     bool // metrics over loopback only
	orders    []string
	asked     string
	down      error
	secrets   []secret.Status
	names     *known
	lost      time.Time
	probed    []string
	page      string // Envoy's metrics; empty for "a 1"
}

func (w *world) Stale() (time.Time, bool)     { return w.lost, !w.lost.IsZero() }
func (w *world) Kept() lastgood.State         { return lastgood.State{Resources: 3} }
func (w *world) Health() (relay.Health, bool) { return relay.Health{Healthy: true}, true }

// known are the names of a DNS proxy.
type known struct{ notReady error }

func (k *known) Ready() error { return k.notReady }
func (k *known) Names() map[string][]netip.Addr {
	return map[string][]netip.Addr{"a.com": {netip.MustParseAddr("10.0.0.1")}}
}
func (k *known) Metrics() string { return "names 1\n" }

func (w *world) Ready(context.Context) error { return w.notReady }
func (w *world) Leaving() bool               { return w.leaving }
func (w *world) Serving() bool               { return w.serving }
func (w *world) Replacing() bool             { return w.replacing }
func (w *world) Refused() (string, bool)     { return w.refused, w.refused != "" }
func (w *world) Leave()                      { w.orders = append(w.orders, "leave") }
func (w *world) End()                        { w.orders = append(w.orders, "end") }

func (w *world) Secrets() []secret.Status { return w.secrets }

func (w *world) Do(_ context.Context, method, path string) (*http.Response, error) {
	w.asked = method + " " + path
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain; version=0.0.4"}}, Body: io.NopCloser(strings.NewReader(cmp.Or(w.page, "a 1\n")))}, w.down
}

func (w *world) call(method, path, from string) *httptest.ResponseRecorder {
	return w.ask(method, path, from, "localhost:15020", "")
}

// ask sends a request with a Host header, as a page of some site if origin is not empty.
func (w *world) ask(method, path, from, host, origin string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr, r.Host = from, host
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	rec := httptest.NewRecorder()
	var n Names
	if w.names != nil {
		n = w.names
	}
	Handler(Parts{Envoy: w, Life: w, Discovery: w, Secrets: w, Names: n, Restart: w.restart, LocalMetrics: w.local, Probes: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.probed = append(w.probed, r.URL.Path)
	}), Log: slog.New(slog.DiscardHandler)}).ServeHTTP(rec, r)
	return rec
}

const (
	here  = "127.0.0.1:1"
	there = "10.0.0.9:1"
)

// TestBrowser: a web page in a browser on this host can neither send orders nor read pages for this host only, whether its name leads here
// (DNS rebinding) or it asks for this host by address. Probes and scrapes answer to every name.
func TestBrowser(t *testing.T) {
	for _, c := range []struct {
		method, path, host, origin string
		code                       int
	}{
		{"POST", "/quitquitquit", "rebind.evil.example:15020", "", 421},
		{"POST", "/drain", "rebind.evil.example:15020", "http://rebind.evil.example:15020", 421},
		{"POST", "/quitquitquit", "127.0.0.1:15020", "http://evil.example", 403},
		{"POST", "/restart", "localhost:15020", "null", 403},
		{"GET", "/debug/secretz", "rebind.evil.example", "", 421},
		{"GET", "/debug/ndsz", "rebind.evil.example", "", 421},
		{"GET", "/healthz/ready", "web.shop.example", "", 200},
		{"GET", "/stats/prometheus", "web.shop.example", "", 200},
		{"POST", "/quitquitquit", "[::1]:15020", "", 200},
	} {
		w := world{serving: true, restart: func() { t.Error("it was restarted") }}
		rec := w.ask(c.method, c.path, here, c.host, c.origin)
		if rec.Code != c.code || c.code != 200 && len(w.orders) > 0 {
			t.Errorf("%s %s at %s from %q: %d %s, orders %v", c.method, c.path, c.host, c.origin, rec.Code, rec.Body, w.orders)
		}
	}
}

func TestReadiness(t *testing.T) {
	for _, c := range []struct {
		world world
		code  int
		text  string
	}{
		{world{serving: true}, 200, "ready"},
		{world{}, 503, "not ready: the proxy has just started"},
		{world{serving: true, notReady: errors.New("no listeners")}, 503, "not ready: no listeners"},
		{world{leaving: true}, 503, "not ready: the proxy is draining"},
		{world{serving: true, names: &known{errors.New("no names")}}, 503, "not ready: no names"},
		{world{serving: true, names: &known{}}, 200, "ready"},
		{world{serving: true, replacing: true, notReady: errors.New("nobody answers")}, 200, "ready: the present Envoy serves while another one is to take its place"},
		{world{serving: true, refused: "exit status 1"}, 200, "ready, but with the last good bootstrap: Envoy fails with the changed one: exit status 1\n"},
	} {
		rec := c.world.call("GET", "/healthz/ready", there)
		if rec.Code != c.code || !strings.Contains(rec.Body.String(), c.text) {
			t.Errorf("%+v: %d %s", c.world, rec.Code, rec.Body)
		}
	}
}

// TestMetrics: a scrape gets Envoy's metrics and the agent's, and the agent's also while Envoy does not answer.
func TestMetrics(t *testing.T) {
	w := &world{secrets: stood()}
	for _, path := range []string{"/stats/prometheus", "/metrics"} {
		rec := w.call("GET", path, there)
		own, passed := strings.CutPrefix(rec.Body.String(), "a 1\n")
		if rec.Code != 200 || !passed || !strings.Contains(own, secretCounts) || !strings.Contains(own, refusedCount) || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain; version=0.0.4") || w.asked != "GET /stats/prometheus" {
			t.Errorf("%s: %d %s %v, asked %s", path, rec.Code, rec.Body, rec.Header(), w.asked)
		}
	}
	w.down = errors.New("connection refused")
	if rec := w.call("GET", "/metrics", there); rec.Code != 200 || !strings.Contains(rec.Body.String(), `pilot_agent_scrape_target_up{target="envoy"} 0`) || !strings.Contains(rec.Body.String(), secretCounts) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// TestEnvoyMetrics: the listeners of Envoy get its metrics alone, over loopback only; metrics of the mesh have Istio's names.
func TestEnvoyMetrics(t *testing.T) {
	w := &world{page: "# TYPE envoy_istio_requests_total counter\nenvoy_istio_requests_total{reporter=\"source\"} 3\n# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"}
	const want = "# TYPE istio_requests_total counter\nistio_requests_total{reporter=\"source\"} 3\n# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"
	rec := w.call("GET", "/stats/envoy?usedonly", here)
	if rec.Code != 200 || rec.Body.String() != want || w.asked != "GET /stats/prometheus?usedonly" || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%d %s %v, asked %s", rec.Code, rec.Body, rec.Header(), w.asked)
	}
	if rec := w.call("GET", "/stats/envoy", there); rec.Code != 403 {
		t.Errorf("another host gets it: %d", rec.Code)
	}
}

// TestExpiry: dashboards and alerts see how long certificates are still valid.
func TestExpiry(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	soon, past := now.Add(90*time.Second), now.Add(-time.Second)
	got := secretMetrics([]secret.Status{{Name: "default", Expires: &soon}, {Name: "ROOTCA", Expires: &past}, {Name: "file-root:/a"}}, now)
	const want = `# TYPE istio_agent_cert_expiry_seconds gauge
istio_agent_cert_expiry_seconds{resource_name="default"} 90
istio_agent_cert_expiry_seconds{resource_name="ROOTCA"} -1
`
	if !strings.HasSuffix(got, want) {
		t.Errorf("%s", got)
	}
}

// stood are secrets in several states, and secretCounts their metrics.
func stood() []secret.Status {
	return []secret.Status{
		{Name: "file-root:/a", State: secret.StateServed, Streams: 1}, {Name: "file-root:/b", State: secret.StateServed, Refusal: "too short"},
		{Name: "file-root:/c", State: secret.StateMissing, Problem: "it is not there"},
	}
}

const refusedCount = "\npilot_agent_bootstrap_refused 0\n"

const secretCounts = `pilot_agent_secrets{state="waiting"} 0
pilot_agent_secrets{state="served"} 2
pilot_agent_secrets{state="kept"} 0
pilot_agent_secrets{state="missing"} 1
# HELP pilot_agent_secrets_refused Certificates and CA certificates from the agent that Envoy has rejected.
# TYPE pilot_agent_secrets_refused gauge
pilot_agent_secrets_refused 1
`

// TestSecretz: only this host gets the states of secrets.
func TestSecretz(t *testing.T) {
	w := &world{secrets: stood()}
	rec := w.call("GET", "/debug/secretz", here)
	var page struct{ Secrets []secret.Status }
	if err := json.Unmarshal(rec.Body.Bytes(), &page); rec.Code != 200 || err != nil || !reflect.DeepEqual(page.Secrets, stood()) {
		t.Errorf("%d %v\n%s", rec.Code, err, rec.Body)
	}
	if rec := w.call("GET", "/debug/secretz", there); rec.Code != 403 {
		t.Errorf("another host is told: %d %s", rec.Code, rec.Body)
	}
}

// TestOrders: requests to drain, restart and stop are accepted by POST from this host only.
func TestOrders(t *testing.T) {
	w := &world{}
	for _, c := range []struct {
		method, path, from string
		code               int
	}{
		{"POST", "/drain", here, 200},
		{"POST", "/quitquitquit", "[::1]:5", 200},
		{"POST", "/drain", "[::ffff:127.0.0.1]:5", 200},
		{"POST", "/drain", there, 403},
		{"POST", "/restart", here, 409},
		{"POST", "/restart", there, 403},
		{"POST", "/quitquitquit", "@", 403},
		{"GET", "/quitquitquit", here, 405},
		{"PUT", "/drain", here, 405},
		{"GET", "/", here, 404},
	} {
		if rec := w.call(c.method, c.path, c.from); rec.Code != c.code {
			t.Errorf("%s %s from %s: %d %s, want %d", c.method, c.path, c.from, rec.Code, rec.Body, c.code)
		}
	}
	if want := []string{"leave", "end", "leave"}; !slices.Equal(w.orders, want) {
		t.Errorf("orders %q, want %q", w.orders, want)
	}
	w.restart = func() { w.orders = append(w.orders, "restart") }
	if rec := w.call("POST", "/restart", here); rec.Code != 200 || w.orders[len(w.orders)-1] != "restart" {
		t.Errorf("%d, orders %q", rec.Code, w.orders)
	}
}

// TestNames: only this host gets the names.
func TestNames(t *testing.T) {
	w := &world{}
	if rec := w.call("GET", "/debug/ndsz", here); rec.Code != 404 || !strings.Contains(rec.Body.String(), "ISTIO_META_DNS_CAPTURE") {
		t.Errorf("without a DNS proxy: %d %s", rec.Code, rec.Body)
	}
	w.names = &known{}
	rec := w.call("GET", "/debug/ndsz", here)
	var page struct{ Names map[string][]string }
	if err := json.Unmarshal(rec.Body.Bytes(), &page); rec.Code != 200 || err != nil || !reflect.DeepEqual(page.Names, map[string][]string{"a.com": {"10.0.0.1"}}) {
		t.Errorf("%d %v\n%s", rec.Code, err, rec.Body)
	}
	if rec := w.call("GET", "/debug/ndsz", there); rec.Code != 403 {
		t.Errorf("another host is told: %d %s", rec.Code, rec.Body)
	}
	if rec := w.call("GET", "/metrics", here); !strings.Contains(rec.Body.String(), "\nnames 1\n") {
		t.Errorf("%s", rec.Body)
	}
}

// TestProbes: probes from every host reach their handler, because the kubelet is not on this host.
func TestProbes(t *testing.T) {
	w := &world{}
	want := []string{"/app-health/a/readyz", "/app-lifecycle/a/prestopz"}
	for _, path := range want {
		if rec := w.call("GET", path, there); rec.Code != 200 {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
		if rec := w.call("POST", path, there); rec.Code != 405 {
			t.Errorf("POST %s: %d %s", path, rec.Code, rec.Body)
		}
	}
	if !slices.Equal(w.probed, want) {
		t.Errorf("%q were passed on, want %q", w.probed, want)
	}
}

// TestLocalMetrics: where metrics are for loopback only, no other host gets any, and all else stays as it is.
func TestLocalMetrics(t *testing.T) {
	w := &world{serving: true, local: true}
	for _, c := range []struct {
		path, from string
		code       int
	}{
		{"/metrics", there, 403}, {"/stats/prometheus", there, 403}, {"/stats/prometheus", "[fd00::1]:1", 403}, {"/metrics", here, 200}, {"/stats/prometheus", "[::1]:1", 200},
		{"/healthz/ready", there, 200}, {"/app-health/a/readyz", there, 200},
	} {
		if rec := w.call("GET", c.path, c.from); rec.Code != c.code {
			t.Errorf("%s from %s: %d, want %d", c.path, c.from, rec.Code, c.code)
		}
	}
}
