package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pilotmesh/pilot/test/testbed"
)

// healthy is an application that is probed: over HTTP, HTTPS and gRPC.
type healthy struct{ http, https, grpc int }

func newHealthy(t *testing.T) healthy {
	t.Helper()
	app := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-r.Context().Done()
		case "/large":
			_, _ = w.Write(make([]byte, 10<<20)) // the agent reads less
		case "/healthy":
			fmt.Fprintf(w, "%s from %s", r.Host, r.Header.Get("X-From"))
		default:
			http.NotFound(w, r)
		}
	}
	plain, secure := httptest.NewServer(http.HandlerFunc(app)), httptest.NewTLSServer(http.HandlerFunc(app))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := grpc.NewServer()
	healthpb.RegisterHealthServer(calls, health.NewServer())
	go func() { _ = calls.Serve(l) }() // ends by Stop
	t.Cleanup(func() {
		plain.Close()
		secure.Close()
		calls.Stop()
	})
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	return healthy{port(plain.Listener.Addr()), port(secure.Listener.Addr()), port(l.Addr())}
}

// TestProbes: the kubelet asks the agent, the agent asks the application, and Envoy has no part in it.
func TestProbes(t *testing.T) {
	b := newBed(t)
	app := newHealthy(t)
	o := options()
	o.Env = []string{"INSTANCE_IP=127.0.0.1", fmt.Sprintf(`ISTIO_KUBE_APP_PROBERS={
		"/app-health/a/readyz": {"httpGet": {"path": "/healthy", "port": %d, "httpHeaders": [{"name": "Host", "value": "web.com"}, {"name": "X-From", "value": "kubelet"}]}, "timeoutSeconds": 9},
		"/app-health/a/livez": {"httpGet": {"path": "/hang", "port": %[1]d}},
		"/app-health/a/startupz": {"httpGet": {"path": "/large", "port": %[1]d}, "timeoutSeconds": 9},
		"/app-health/b/readyz": {"httpGet": {"path": "/healthy", "port": %[2]d, "scheme": "HTTPS"}, "timeoutSeconds": 9},
		"/app-health/b/livez": {"tcpSocket": {"port": %[1]d}, "timeoutSeconds": 9},
		"/app-health/c/readyz": {"grpc": {"port": %[3]d}, "timeoutSeconds": 9},
		"/app-health/c/livez": {"grpc": {"port": %[3]d, "service": "shop.Cart"}, "timeoutSeconds": 9},
		"/app-lifecycle/a/prestopz": {"httpGet": {"path": "/healthy", "port": %[1]d}}
	}`, app.http, app.https, app.grpc)}
	a := b.agent(o, testbed.Node{}) // without a control plane: the application's health does not depend on it
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"/app-health/a/readyz", 200, "web.com from kubelet"},
		{"/app-health/a/livez", 500, "the application did not answer within 1s"},
		{"/app-health/a/startupz", 200, "\x00"},
		{"/app-health/b/readyz", 200, fmt.Sprintf("127.0.0.1:%d from", app.https)},
		{"/app-health/b/livez", 200, "OK"},
		{"/app-health/c/readyz", 200, "OK"},
		{"/app-health/c/livez", 500, `does not know the gRPC service "shop.Cart"`},
		{"/app-health/d/livez", 404, "there is no probe /app-health/d/livez"},
		{"/app-lifecycle/a/prestopz", 200, fmt.Sprintf("127.0.0.1:%d from", app.http)},
	} {
		code, body, _ := b.page(a.StatusPort, c.path, "")
		if code != c.code || !strings.Contains(body, c.want) || len(body) > 1<<16 {
			t.Errorf("%s: %d %.200s; want %d %s", c.path, code, body, c.code, c.want)
		}
	}
}

// page returns a page of a port of the agent, once that answers.
func (b *bed) page(port int, path, accept string) (code int, body, contentType string) {
	b.Helper()
	b.await("an answer of the agent", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(port)+path, nil)
		if err != nil {
			return err
		}
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
		resp, err := b.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		code, body, contentType = resp.StatusCode, string(text), resp.Header.Get("Content-Type")
		return err
	})
	return code, body, contentType
}
