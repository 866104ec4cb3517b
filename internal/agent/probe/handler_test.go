package probe

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// application answers probes. Its answer describes the request.
func application(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/x-seen")
	switch r.URL.Path {
	case "/fail":
		http.Error(w, "broken", http.StatusTeapot)
	case "/hang":
		<-r.Context().Done()
	case "/large":
		_, _ = w.Write(bytes.Repeat([]byte("0123456789"), 1<<20)) // the reader may stop early
	case "/here":
		http.Redirect(w, r, "/seen", http.StatusFound)
	case "/there":
		http.Redirect(w, r, "http://192.0.2.1/secret", http.StatusFound)
	case "/round":
		http.Redirect(w, r, "/round", http.StatusFound)
	case "/seen":
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintf(w, "%s %s host=%s from=%s agent=%s x=%q accept=%q connection=%q", r.Method, r.URL, r.Host, from, r.UserAgent(), r.Header["X"], r.Header["Accept"], r.Header["Connection"])
	default:
		http.NotFound(w, r)
	}
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// run runs one probe, as the kubelet would, and returns status and body.
func run(t *testing.T, address, description string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	probes, _, err := Parse(`{"/app-health/app/livez": `+description+`}`, []string{address})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://10.0.0.1:15020/app-health/app/livez", nil)
	r.Header = http.Header{"User-Agent": {"kube-probe/1.36"}, "Connection": {"close"}, "Accept": {"*/*"}, "X": {"kubelet"}}
	Handler(Options{Probes: probes, Address: address, Own: []string{address}, StatusPort: 15020, Log: slog.New(slog.DiscardHandler)}).ServeHTTP(w, r)
	return w, strings.TrimSpace(w.Body.String())
}

func TestHTTP(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(application))
	defer plain.Close()
	port := portOf(plain.Listener.Addr().String())
	for _, c := range []struct {
		path, more string
		code       int
		body       string
	}{
		{"/seen?a=1", "", 200, `GET /seen?a=1 host=10.0.0.1:` + port + ` from=127.0.0.6 agent=kube-probe/1.36 x=["kubelet"] accept=["*/*"] connection=["close"]`},
		{"/seen", `, "httpHeaders": [{"name":"X","value":"1"},{"name":"x","value":"2"},{"name":"host","value":"web.com"},{"name":"Accept","value":""}]`, 200, `GET /seen host=web.com from=127.0.0.6 agent=kube-probe/1.36 x=["1" "2"] accept=[] connection=["close"]`},
		{"/here", "", 200, "GET /seen"},
		{"/there", "", 302, ""},
		{"/round", "", 500, "stopped after 10 redirects"},
		{"/fail", "", 418, "broken"},
		{"/none", "", 404, "404 page not found"},
		{"/seen", `, "scheme": "HTTPS"`, 500, "server gave HTTP response to HTTPS client"},
	} {
		resp, body := run(t, "127.0.0.1", fmt.Sprintf(`{"httpGet": {"port": %s, "path": %q%s}}`, port, c.path, c.more))
		if resp.Code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s%s: %d %s; want %d %s", c.path, c.more, resp.Code, body, c.code, c.body)
		}
	}
	resp, _ := run(t, "127.0.0.1", `{"httpGet": {"port": `+port+`, "path": "/there"}}`)
	if got := resp.Header().Get("Location"); got != "http://192.0.2.1/secret" {
		t.Errorf("the redirect to another host is passed on as %q", got)
	}
	resp, body := run(t, "127.0.0.1", `{"httpGet": {"port": `+port+`, "path": "/large"}}`)
	if resp.Code != http.StatusOK || len(body) != maxBody {
		t.Errorf("of a large answer: %d, %d bytes", resp.Code, len(body))
	}
	began := time.Now()
	resp, body = run(t, "127.0.0.1", `{"httpGet": {"port": `+port+`, "path": "/hang"}}`)
	if resp.Code != http.StatusInternalServerError || !strings.Contains(body, "the application did not answer within 1s") || time.Since(began) < time.Second {
		t.Errorf("of no answer: %d %s", resp.Code, body)
	}
}

// TestHTTPS: an untrusted certificate is accepted, as by the kubelet.
func TestHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(application))
	defer s.Close()
	resp, body := run(t, "127.0.0.1", `{"httpGet": {"port": `+portOf(s.Listener.Addr().String())+`, "path": "/seen", "scheme": "HTTPS"}}`)
	if resp.Code != http.StatusOK || !strings.Contains(body, "GET /seen") {
		t.Errorf("%d %s", resp.Code, body)
	}
}

// TestIPv6: probes work on a host without the address ::6.
func TestIPv6(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6:", err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(application), ReadHeaderTimeout: time.Minute}}
	s.Start()
	defer s.Close()
	for _, d := range []string{`{"httpGet": {"port": %s, "path": "/seen"}}`, `{"tcpSocket": {"port": %s}}`, `{"tcpSocket": {"port": %s, "host": "localhost"}}`} {
		if resp, body := run(t, "::1", fmt.Sprintf(d, portOf(l.Addr().String()))); resp.Code != http.StatusOK {
			t.Errorf("%s: %d %s", d, resp.Code, body)
		}
	}
}

// garbage returns the address of a server whose answers follow no protocol.
func garbage(t *testing.T) (port string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadByte()
			_, _ = c.Write([]byte("\x00\xff garbage\r\n\r\n"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return portOf(l.Addr().String())
}

func TestTCP(t *testing.T) {
	open := garbage(t)
	if resp, body := run(t, "127.0.0.1", `{"tcpSocket": {"port": `+open+`}}`); resp.Code != http.StatusOK || body != "OK" {
		t.Errorf("open: %d %s", resp.Code, body)
	}
	if resp, body := run(t, "127.0.0.1", `{"httpGet": {"port": `+open+`}}`); resp.Code != http.StatusInternalServerError || !strings.Contains(body, "malformed HTTP") {
		t.Errorf("garbage: %d %s", resp.Code, body)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := portOf(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if resp, body := run(t, "127.0.0.1", `{"tcpSocket": {"port": `+closed+`}}`); resp.Code != http.StatusInternalServerError || !strings.Contains(body, "connection refused") {
		t.Errorf("closed: %d %s", resp.Code, body)
	}
}

func TestGRPC(t *testing.T) {
	serve := func(register func(*grpc.Server)) string {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		register(s)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.Serve(l)
		}()
		t.Cleanup(func() { s.Stop(); <-ended })
		return portOf(l.Addr().String())
	}
	states := health.NewServer()
	states.SetServingStatus("up", healthpb.HealthCheckResponse_SERVING)
	states.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	healthy := serve(func(s *grpc.Server) { healthpb.RegisterHealthServer(s, states) })
	none := serve(func(*grpc.Server) {})
	for _, c := range []struct {
		port, service string
		code          int
		body          string
	}{
		{healthy, "", 200, "OK"},
		{healthy, "up", 200, "OK"},
		{healthy, "down", 500, `the gRPC service "down" of the application is NOT_SERVING`},
		{healthy, "other", 500, `does not know the gRPC service "other"`},
		{none, "", 500, "does not implement the gRPC health protocol"},
		{garbage(t), "", 500, "the application"},
	} {
		resp, body := run(t, "127.0.0.1", `{"grpc": {"port": `+c.port+`, "service": `+strconv.Quote(c.service)+`}}`)
		if resp.Code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%q: %d %s; want %d %s", c.service, resp.Code, body, c.code, c.body)
		}
	}
}

// TestLimit: probes beyond the limit, and unknown ones, are refused.
func TestLimit(t *testing.T) {
	h := &handler{Options: Options{Probes: Probes{"/p": {}}}, running: make(chan struct{})}
	for path, want := range map[string]int{"/p": 503, "/q": 404} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestProtocols: an application with HTTP/2 only is healthy over HTTPS, as it is for the kubelet, unless HTTP/2 is not offered. One with
// HTTP/1 only is healthy in any case.
func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		only           string
		offered, ready bool
	}{{"HTTP/2", true, true}, {"HTTP/2", false, false}, {"HTTP/1", true, true}, {"HTTP/1", false, true}, {"both", true, true}} {
		var spoken atomic.Value
		app := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { spoken.Store(r.Proto) }))
		app.Config.Protocols = new(http.Protocols)
		app.Config.Protocols.SetHTTP1(c.only != "HTTP/2")
		app.Config.Protocols.SetHTTP2(c.only != "HTTP/1")
		app.EnableHTTP2 = c.only != "HTTP/1"
		app.Config.ErrorLog = log.New(io.Discard, "", 0)
		app.StartTLS()
		probes, _, err := Parse(`{"/app-health/app/readyz":{"httpGet":{"port":`+portOf(app.Listener.Addr().String())+`,"scheme":"HTTPS"}}}`, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		Handler(Options{Probes: probes, Address: "127.0.0.1", HTTP1Only: !c.offered, Log: slog.New(slog.DiscardHandler)}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/app-health/app/readyz", nil))
		if (w.Code == http.StatusOK) != c.ready {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
		if want := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[c.offered && c.only != "HTTP/1"]; c.ready && spoken.Load() != want {
			t.Errorf("%+v: %v was spoken, want %s", c, spoken.Load(), want)
		}
		app.Close()
	}
}

// TestKeepAlive: connections of probes are kept only if the options say so.
func TestKeepAlive(t *testing.T) {
	for _, keep := range []bool{true, false} {
		var connections atomic.Int32
		app := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		app.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		}
		app.Start()
		probes, _, err := Parse(`{"/app-health/app/readyz":{"httpGet":{"port":`+portOf(app.Listener.Addr().String())+`}}}`, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := Handler(Options{Probes: probes, Address: "127.0.0.1", KeepAlive: keep, Log: slog.New(slog.DiscardHandler)})
		for range 3 {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/app-health/app/readyz", nil)); w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if n := connections.Load(); n != map[bool]int32{true: 1, false: 3}[keep] {
			t.Errorf("kept %v: %d connections for three probes", keep, n)
		}
		app.Close()
	}
}
