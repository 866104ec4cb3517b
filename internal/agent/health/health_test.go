package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse reads a probe in YAML.
func parse(t *testing.T, text string) (Probe, error) {
	t.Helper()
	var p networking.ReadinessProbe
	v, err := document.Split([]byte(text))[0].Parse()
	if err != nil {
		t.Fatal(err)
	}
	if f := document.Read(&p, v, nil, document.Options{}); len(f) > 0 {
		t.Fatal(f)
	}
	return Parse(&p, "127.0.0.1")
}

// asked is the result of one attempt.
func asked(t *testing.T, text string) string {
	t.Helper()
	p, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Probe: p, Envoy: func(context.Context) error { return nil }, Log: slog.New(slog.DiscardHandler)})
	if err := c.try(t.Context()); err != nil {
		return err.Error()
	}
	return "healthy"
}

// wants checks the result of an attempt.
func wants(t *testing.T, text, want string) {
	t.Helper()
	if got := asked(t, text); !strings.Contains(got, want) {
		t.Errorf("%s: %s; want %s", text, got, want)
	}
}

// portOf returns the port of a listener.
func portOf(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

func application(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/hang":
		<-r.Context().Done()
	case r.Host != "shop.test" || r.Header.Get("X") != "1" || r.URL.RawQuery != "q=1":
		http.Error(w, "no", http.StatusTeapot)
	}
}

func TestHTTP(t *testing.T) {
	for scheme, start := range map[string]func(http.Handler) *httptest.Server{"HTTP": httptest.NewServer, "HTTPS": httptest.NewTLSServer} {
		s := start(http.HandlerFunc(application))
		probe := func(path, more string) string {
			return fmt.Sprintf("{httpGet: {path: %q, port: %s, scheme: %s, httpHeaders: [{name: Host, value: shop.test}%s]}, timeoutSeconds: 1}", path, portOf(s.Listener), scheme, more)
		}
		wants(t, probe("ready?q=1", ", {name: X, value: '1'}"), "healthy")
		wants(t, probe("/ready", ""), "the application answers GET /ready with 418")
		wants(t, probe("/hang", ""), "the application did not answer within 1s")
		s.Close()
		wants(t, probe("/ready", ""), "connection refused")
	}
}

// TestLateAnswer: an answer that comes when the time is over, because the end of the request has brought it, is none.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := parse(t, "{tcpSocket: {port: 1}, timeoutSeconds: 2}")
		if err != nil {
			t.Fatal(err)
		}
		late := func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}
		c := New(Options{Probe: p, Envoy: late, Log: slog.New(slog.DiscardHandler)})
		if err := c.try(t.Context()); err == nil || !strings.Contains(err.Error(), "Envoy did not answer within 2s") {
			t.Errorf("a late answer: %v", err)
		}
	})
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	probe := "{tcpSocket: {host: localhost, port: " + portOf(l) + "}}"
	wants(t, probe, "healthy")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wants(t, probe, "connection refused")
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, state := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, state)
	go func() { _ = server.Serve(l) }() // ends by Stop
	defer server.Stop()
	wants(t, "{grpc: {port: "+portOf(l)+"}}", "healthy")
	state.SetServingStatus("shop", healthpb.HealthCheckResponse_NOT_SERVING)
	wants(t, "{grpc: {port: "+portOf(l)+", service: shop}}", `the gRPC service "shop" of the application is NOT_SERVING`)
	wants(t, "{grpc: {port: "+portOf(l)+", service: other}}", `does not know the gRPC service "other"`)
}

// TestExec: a command that fails, that does not exist or that does not end is a failure, and the error quotes its output. No process of it
// is left behind.
func TestExec(t *testing.T) {
	wants(t, `{exec: {command: [/bin/true]}}`, "healthy")
	wants(t, `{exec: {command: [/bin/sh, -c, "echo no database >&2; exit 3"]}}`, "exit status 3: no database")
	wants(t, `{exec: {command: [/nowhere]}}`, "no such file")
	file := filepath.Join(t.TempDir(), "pid")
	wants(t, fmt.Sprintf(`{exec: {command: [/bin/sh, -c, "sleep 1000 & echo $! > %s; wait"]}, timeoutSeconds: 1}`, file), "did not answer within 1s")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(20 * time.Second); running(strings.TrimSpace(string(text))); {
		select {
		case <-deadline:
			t.Fatal("a process is left behind")
		default:
		}
	}
}

// running reports whether a process runs; one that has ended may wait for its parent to ask for its state.
func running(pid string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{periodSeconds: -1, tcpSocket: {port: 1}}":           "periodSeconds: -1 is negative",
		"{timeoutSeconds: 1}":                                 "none of httpGet",
		"{tcpSocket: {}}":                                     "the port 0 is not between",
		"{grpc: {port: 70000}}":                               "the port 70000 is not between",
		"{exec: {}}":                                          "it has no words",
		"{httpGet: {port: 1, scheme: ftp}}":                   "neither HTTP nor HTTPS",
		"{httpGet: {port: 1, httpHeaders: [{name: 'a b'}]}}":  "is not a header",
		"{failureThreshold: -2, httpGet: {port: 1, path: /}}": "failureThreshold: -2 is negative",
	} {
		if _, err := parse(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

// TestThresholds: a result is reported when there were enough of it in a row, and only when it differs from the last report.
func TestThresholds(t *testing.T) {
	for _, c := range []struct{ results, probe, told string }{
		{"++++", "{initialDelaySeconds: 1}", "1s:up"},
		{"--+--+", "{}", "20s:up"},
		{"--+---+--+---", "{failureThreshold: 3}", "20s:up 50s:down 1m0s:up 2m0s:down"},
		{"---+-++", "{failureThreshold: 2, successThreshold: 2}", "10s:down 1m0s:up"},
		{"-e+", "{failureThreshold: 1, periodSeconds: 1, initialDelaySeconds: 5}", "5s:down 7s:up"},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := history(t, c.results, c.probe); got != c.told {
				t.Errorf("%s %s: %s; want %s", c.results, c.probe, got, c.told)
			}
		})
	}
}

// history runs a checker over results: + for success, - for failure, e for an Envoy that is not ready. It returns the reports with their times.
func history(t *testing.T, results, text string) string {
	t.Helper()
	p, err := parse(t, strings.Replace(text, "{", "{exec: {command: [x]}, ", 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start, told, now := time.Now(), []string{}, -1
	p.ask = func(context.Context) error {
		if results[now] == '-' {
			return errors.New("down")
		}
		return nil
	}
	err = New(Options{
		Probe: p, Log: slog.New(slog.DiscardHandler),
		Envoy: func(context.Context) error {
			if now++; now == len(results) {
				cancel()
				return ctx.Err()
			}
			if results[now] == 'e' {
				return errors.New("not ready")
			}
			return nil
		},
		Report: func(err error) {
			word := "up"
			if err != nil {
				word = "down"
			}
			told = append(told, fmt.Sprintf("%v:%s", time.Since(start), word))
		},
	}).Run(ctx)
	if err != nil {
		t.Error(err)
	}
	return strings.Join(told, " ")
}
