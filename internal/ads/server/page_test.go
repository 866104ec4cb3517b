package server

import (
	"context"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// paged is a server with pages: each says its own path, but "none" does not exist.
func paged(t *testing.T, o Options) *rig {
	t.Helper()
	o.Pages = func(_ context.Context, p Page) ([]byte, error) {
		if p.Path == "none" {
			return nil, status.Error(codes.NotFound, "there is no page none")
		}
		if p.Path == "large" {
			return make([]byte, 8<<20), nil
		}
		if p.Address == "" {
			return nil, status.Error(codes.Internal, "nobody asks")
		}
		return []byte("page " + p.Path), nil
	}
	r := newRig(t, o)
	r.mesh.publish(clusters(1, 1, 1, "x"))
	return r
}

// TestPages: a stream asks for pages in all ways in which Istio's tools ask, one after the other, and is no proxy.
func TestPages(t *testing.T) {
	r := paged(t, Options{})
	sotw, err := r.dial(t).StreamAggregatedResources(testContext(t))
	must(t, err)
	for name, q := range map[string]*discoveryv3.DiscoveryRequest{
		"syncz":              {Node: node, TypeUrl: "istio.io/debug", ResourceNames: []string{"syncz"}},
		"syncz?proxyID=a.b":  {TypeUrl: "istio.io/debug", ResourceNames: []string{"/debug/syncz?proxyID=a.b"}},
		"config_dump":        {TypeUrl: "istio.io/debug/config_dump"},
		"config_dump?pretty": {TypeUrl: "istio.io/debug", ResourceNames: []string{"config_dump?pretty"}},
	} {
		must(t, sotw.Send(q))
		answer, err := sotw.Recv()
		must(t, err)
		if len(answer.Resources) != 1 || answer.TypeUrl != q.TypeUrl || string(answer.Resources[0].Value) != "page "+name {
			t.Errorf("%v is answered with %v", q, answer)
		}
		must(t, sotw.Send(&discoveryv3.DiscoveryRequest{TypeUrl: q.TypeUrl, ResourceNames: q.ResourceNames, ResponseNonce: answer.Nonce}))
	}
	delta, err := r.dial(t).DeltaAggregatedResources(testContext(t))
	must(t, err)
	must(t, delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNamesSubscribe: []string{"adsz"}}))
	answer, err := delta.Recv()
	must(t, err)
	if len(answer.Resources) != 1 || answer.Resources[0].Name != "adsz" || string(answer.Resources[0].Resource.Value) != "page adsz" {
		t.Errorf("answered with %v", answer)
	}
	if list := r.server.Streams(); len(list) != 0 || len(r.mesh.streams) != 0 {
		t.Errorf("streams for pages are listed as those of proxies: %v", list)
	}
}

// TestPageNonces: istioctl puts the time into the field of the nonce when it asks. Only the nonce of a page that was sent on the stream
// acknowledges it.
func TestPageNonces(t *testing.T) {
	r := paged(t, Options{})
	s, err := r.dial(t).StreamAggregatedResources(testContext(t))
	must(t, err)
	var last string
	for _, nonce := range []string{"2026-11-25 10:00:00.5 +0000 UTC m=+0.1", "page-0", "page-9", "page-x", "syncz"} {
		must(t, s.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: "istio.io/debug", ResourceNames: []string{"syncz"}, ResponseNonce: nonce}))
		answer, err := s.Recv()
		must(t, err)
		last = answer.Nonce
	}
	for _, nonce := range []string{"page-1", last} {
		must(t, s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNames: []string{"syncz"}, ResponseNonce: nonce}))
	}
	must(t, s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNames: []string{"adsz"}}))
	answer, err := s.Recv()
	must(t, err)
	if string(answer.Resources[0].Value) != "page adsz" {
		t.Errorf("an acknowledgement is answered with %q", answer.Resources[0].Value)
	}
}

// TestPageRefused: what cannot be answered ends the stream, and says why.
func TestPageRefused(t *testing.T) {
	r := paged(t, Options{})
	for _, c := range []struct {
		name string
		list []*discoveryv3.DiscoveryRequest
		want codes.Code
	}{
		{"no page", []*discoveryv3.DiscoveryRequest{{TypeUrl: "istio.io/debug"}}, codes.InvalidArgument},
		{"two pages", []*discoveryv3.DiscoveryRequest{{TypeUrl: "istio.io/debug", ResourceNames: []string{"a", "b"}}}, codes.InvalidArgument},
		{"another type of the same prefix", []*discoveryv3.DiscoveryRequest{{TypeUrl: "istio.io/debugger", ResourceNames: []string{"a"}}}, codes.InvalidArgument},
		{"no such page", []*discoveryv3.DiscoveryRequest{{TypeUrl: "istio.io/debug", ResourceNames: []string{"none"}}}, codes.NotFound},
		{"then clusters", []*discoveryv3.DiscoveryRequest{
			{TypeUrl: "istio.io/debug", ResourceNames: []string{"syncz"}}, {Node: node, TypeUrl: resource.Cluster.URL()},
		}, codes.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream, err := r.dial(t).StreamAggregatedResources(testContext(t))
			must(t, err)
			for _, q := range c.list {
				_ = stream.Send(q) // the end may come first
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != c.want {
				t.Errorf("it ended with %v, want %v", err, c.want)
			}
		})
	}
}

// TestPageOnProxyStream: a request for a page on the stream of a proxy is one of an unknown type, and the proxy is served as before.
func TestPageOnProxyStream(t *testing.T) {
	o := &counting{}
	r := paged(t, Options{Observer: o})
	stream, err := r.dial(t).StreamAggregatedResources(testContext(t))
	must(t, err)
	must(t, stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	must(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNames: []string{"syncz"}}))
	answer, err := stream.Recv()
	must(t, err)
	if answer.TypeUrl != resource.Cluster.URL() {
		t.Errorf("answered with %v", answer)
	}
	waitFor(testContext(t), t, "the request to be counted", func() bool { return o.load(&o.unknown) == 1 })
}

// TestPageNotRead: a client that does not read its page loses the stream.
func TestPageNotRead(t *testing.T) {
	o := &counting{}
	r := paged(t, Options{WriteTimeout: 50 * time.Millisecond, Observer: o})
	c := r.conn(t, grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	stream := rawStream(t, c, sotwMethod)
	must(t, stream.SendMsg(encode(t, &discoveryv3.DiscoveryRequest{TypeUrl: "istio.io/debug", ResourceNames: []string{"large"}})))
	waitFor(testContext(t), t, "the end of the stream", func() bool { return o.load(&o.closed) == 1 })
}
