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

// TestProbes: the kubelet asks the agent, the agent asks the application, and Envoy has no part in it.
func TestProbes(t *testing.T) {
	b := newBed(t)
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
	defer plain.Close()
	defer secure.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := grpc.NewServer()
	healthpb.RegisterHealthServer(calls, health.NewServer())
	go func() { _ = calls.Serve(l) }() // ends by Stop
	defer calls.Stop()
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	httpPort, tlsPort, grpcPort := port(plain.Listener.Addr()), port(secure.Listener.Addr()), port(l.Addr())

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
	}`, httpPort, tlsPort, grpcPort)}
	a := b.agent(o, testbed.Node{}) // without a control plane: the application's health does not depend on it
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"/app-health/a/readyz", 200, "web.com from kubelet"},
		{"/app-health/a/livez", 500, "the application did not answer within 1s"},
		{"/app-health/a/startupz", 200, "\x00"},
		{"/app-health/b/readyz", 200, fmt.Sprintf("127.0.0.1:%d from", tlsPort)},
		{"/app-health/b/livez", 200, "OK"},
		{"/app-health/c/readyz", 200, "OK"},
		{"/app-health/c/livez", 500, `does not know the gRPC service "shop.Cart"`},
		{"/app-health/d/livez", 404, "there is no probe /app-health/d/livez"},
		{"/app-lifecycle/a/prestopz", 200, fmt.Sprintf("127.0.0.1:%d from", httpPort)},
	} {
		var code int
		var body []byte
		b.await("an answer of the status server", func(ctx context.Context) error {
			resp, err := b.open(ctx, a.StatusPort, c.path, "")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			code = resp.StatusCode
			body, err = io.ReadAll(resp.Body)
			return err
		})
		if code != c.code || !strings.Contains(string(body), c.want) || len(body) > 1<<16 {
			t.Errorf("%s: %d %.200s; want %d %s", c.path, code, body, c.code, c.want)
		}
	}
}

// open sends a GET request to a port of the agent.
func (b *bed) open(ctx context.Context, port int, path, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(port)+path, nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return b.client.Do(req)
}
