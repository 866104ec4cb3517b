package tap

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// control is a control plane whose pages name the request and the node that sent it. A page with the name of a status code fails with that code.
type control struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

func (control) StreamAggregatedResources(s grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	q, err := s.Recv()
	if err != nil {
		return err
	}
	page := q.GetResourceNames()[0]
	for _, code := range []codes.Code{codes.NotFound, codes.PermissionDenied, codes.InvalidArgument, codes.Unavailable, codes.Internal, codes.Unauthenticated} {
		if page == code.String() {
			return status.Error(code, "no page "+page)
		}
	}
	answer := &discoveryv3.DiscoveryResponse{TypeUrl: q.GetTypeUrl(), Resources: []*anypb.Any{{Value: []byte(q.GetNode().GetId() + " asks for " + page)}}}
	if page == "nothing" {
		answer.Resources = nil
	}
	return s.Send(answer)
}

// serve returns the address of a control plane.
func serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, control{})
	done := make(chan struct{})
	go func() { _ = g.Serve(l); close(done) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return l.Addr().String()
}

// get sends a request to a tap of a control plane.
func get(t *testing.T, dial func() (*grpc.ClientConn, error), method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	q := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	q.Host = "localhost:15004"
	Handler(dial, &corev3.Node{Id: "sidecar~web-1.shop"}).ServeHTTP(w, q)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, strings.TrimSpace(string(body))
}

func to(address string) func() (*grpc.ClientConn, error) {
	return func() (*grpc.ClientConn, error) {
		return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
}

// TestHandler: a page is requested with its parameters, as the proxy, and a refusal by the control plane has a fitting status.
func TestHandler(t *testing.T) {
	here := to(serve(t))
	for _, c := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/debug/syncz", 200, "sidecar~web-1.shop asks for syncz"},
		{"GET", "/debug/config_dump?proxyID=web-1&pretty", 200, "sidecar~web-1.shop asks for config_dump?proxyID=web-1&pretty"},
		{"GET", "/debug/", 200, "sidecar~web-1.shop asks for list"},
		{"GET", "/debug/NotFound", 404, "no page NotFound"},
		{"GET", "/debug/PermissionDenied", 403, "no page PermissionDenied"},
		{"GET", "/debug/Unauthenticated", 403, "the control plane: no page Unauthenticated"},
		{"GET", "/debug/InvalidArgument", 400, "no page InvalidArgument"},
		{"GET", "/debug/Unavailable", 503, "the control plane: no page Unavailable"},
		{"GET", "/debug/Internal", 502, "the control plane: no page Internal"},
		{"GET", "/debug/nothing", 502, `the control plane answered with 0 resources of the type "istio.io/debug" instead of one page`},
		{"POST", "/debug/syncz", 404, "there is no POST /debug/syncz: GET /debug/list lists the pages of the control plane"},
		{"GET", "/stats", 404, "there is no GET /stats: GET /debug/list lists the pages of the control plane"},
	} {
		if code, body := get(t, here, c.method, c.path); code != c.code || body != c.body {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, body)
		}
	}
}

// TestHost: a web page whose name resolves to this host (DNS rebinding) gets no answer.
func TestHost(t *testing.T) {
	w := httptest.NewRecorder()
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/syncz", http.NoBody)
	q.Host = "rebind.evil.example:15004"
	Handler(func() (*grpc.ClientConn, error) {
		t.Error("the control plane is asked")
		return nil, errors.New("no")
	}, &corev3.Node{}).ServeHTTP(w, q)
	if w.Code != http.StatusMisdirectedRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestUnreachable: without a control plane or a credential of the agent, the error says so.
func TestUnreachable(t *testing.T) {
	if code, body := get(t, to("127.0.0.1:1"), "GET", "/debug/syncz"); code != 503 || !strings.Contains(body, "connection refused") {
		t.Errorf("nobody listens: %d %s", code, body)
	}
	none := func() (*grpc.ClientConn, error) { return nil, errors.New("there is no token") }
	if code, body := get(t, none, "GET", "/debug/syncz"); code != 502 || body != "there is no token" {
		t.Errorf("nothing to show: %d %s", code, body)
	}
}
