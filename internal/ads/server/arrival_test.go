package server

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// returning is the first request of a client that connects again with the versions of so many clusters.
func returning(t *testing.T, id string, has int) []byte {
	t.Helper()
	versions := map[string]string{}
	for i := range has {
		versions[fmt.Sprintf("outbound|80||service-%d.shop.svc.cluster.local", i)] = "an older version"
	}
	return encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id}, TypeUrl: resource.Cluster.URL(), InitialResourceVersions: versions})
}

// connected is how many streams the mesh has.
func (r *rig) connected() int {
	r.mesh.mu.Lock()
	defer r.mesh.mu.Unlock()
	return len(r.mesh.streams)
}

// TestArrivalsWaitForOneAnother: while the server keeps the versions of one client, because its class has no state yet, it reads nothing of the next one.
func TestArrivalsWaitForOneAnother(t *testing.T) {
	r := newRig(t, Options{Arrivals: 1})
	c := r.conn(t)
	small := rawStream(t, c, deltaMethod) // its first request is small, so it leaves the place to others
	must(t, small.SendMsg(returning(t, "small", 1)))
	waitFor(testContext(t), t, "the small request to be read", func() bool { return r.connected() == 1 })

	second := rawStream(t, c, deltaMethod) // it loses its place before it sends anything
	waitFor(testContext(t), t, "the second stream", func() bool { return len(r.server.Streams()) == 2 })
	first := rawStream(t, c, deltaMethod)
	must(t, first.SendMsg(returning(t, "first", 1000)))
	waitFor(testContext(t), t, "the first client", func() bool { return r.connected() == 2 })
	must(t, second.SendMsg(returning(t, "second", 1000)))
	waitFor(testContext(t), t, "all three streams", func() bool { return len(r.server.Streams()) == 3 })
	for range 20 { // the server has time to read the second client's request
		must(t, small.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Extension.URL(), ResourceNamesSubscribe: []string{"x"}})))
		must(t, small.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Extension.URL(), ResourceNamesUnsubscribe: []string{"x"}})))
		var b []byte
		must(t, small.RecvMsg(&b))
	}
	if n := r.connected(); n != 2 {
		t.Fatalf("%d streams are connected, although the second client has to wait", n)
	}

	r.mesh.publish(clusters(1, 2, 100, "x"))
	for _, u := range []resource.Type{resource.Endpoint, resource.Listener, resource.Route} {
		must(t, first.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: u.URL(), ResourceNamesSubscribe: []string{"x"}})))
	}
	waitFor(testContext(t), t, "the second client", func() bool { return r.connected() == 3 })
}

// TestStalledArrivals: a client that sends nothing, or stops in the middle of a message, keeps its place for a moment only.
func TestStalledArrivals(t *testing.T) {
	for name, sent := range map[string]int{"nothing": 0, "a part": 40 << 10} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{Arrivals: 1})
			stalled := rawStream(t, r.conn(t, stallAfter(t, sent)), deltaMethod)
			if sent > 0 {
				go func() { _ = stalled.SendMsg(returning(t, "stalled", 100_000)) }()
			}
			waitFor(testContext(t), t, "the stalled stream", func() bool { return len(r.server.Streams()) == 1 })
			other := rawStream(t, r.conn(t), deltaMethod)
			must(t, other.SendMsg(returning(t, "other", 1000)))
			waitFor(testContext(t), t, "the other client", func() bool { return r.connected() == 1 })
		})
	}
}

// stallAfter makes a client's connection stop when it has sent so many bytes of messages.
func stallAfter(t *testing.T, sent int) grpc.DialOption {
	t.Helper()
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return &stalling{conn, sent + 1000, t.Context().Done()}, err
	})
}

// stalling is a connection that writes so many bytes and then waits for the end of the test.
type stalling struct {
	net.Conn
	left int
	end  <-chan struct{}
}

func (s *stalling) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b[:min(len(b), s.left)])
	if s.left -= n; err == nil && n < len(b) {
		<-s.end
		return n, net.ErrClosed
	}
	return n, err
}

// TestArrivalsEnd: a stream keeps its place for its patience at most, whatever the server has yet to compare.
func TestArrivalsEnd(t *testing.T) {
	s := &Stream{server: New(nil, Options{}), conn: &connection{}}
	s.queued.Store(true) // the server has work to do for it
	a := &arrival{stream: s, began: time.Now()}
	if a.look(); a.over.Load() {
		t.Error("an arrival has ended although the server works on it")
	}
	a = &arrival{stream: s, began: time.Now().Add(-2 * arrivalPatience)}
	if a.look(); !a.over.Load() {
		t.Error("an arrival goes on after its patience")
	}
	s.ended.Store(true) // the first one ends, too
}
