package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// whoever admits each client with the identity in its metadata. A client without metadata has none.
func whoever(ctx context.Context) (identity.Caller, error) {
	for _, name := range metadata.ValueFromIncomingContext(ctx, "who") {
		return identity.Caller{Identity: identity.Identity{TrustDomain: "t", Namespace: "n", ServiceAccount: name}}, nil
	}
	return identity.Caller{}, nil
}

// as opens a stream of a client that asks for secrets, and returns the first response, or how the stream ends.
func (r *rig) as(t *testing.T, who string, names ...string) (end func(), err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	if who != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "who", who)
	}
	stream, err := r.dial(t).DeltaAggregatedResources(ctx)
	must(t, err)
	q := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "x"}, TypeUrl: resource.Cluster.URL()}
	if len(names) > 0 {
		q.TypeUrl, q.ResourceNamesSubscribe = resource.Secret.URL(), names
	}
	_ = stream.Send(q) // Recv has the reason
	_, err = stream.Recv()
	return func() {
		cancel()
		for err == nil {
			_, err = stream.Recv()
		}
	}, err
}

// TestStreamsOfOneClient: an identity, and an address whose clients have shown none, have so many streams at most, whatever connections they
// use. Others are not affected, and ended streams count no more.
func TestStreamsOfOneClient(t *testing.T) {
	r := newRig(t, Options{Admit: whoever, MaxStreamsOf: 3})
	r.mesh.publish(clusters(1, 1, 1, "x"))
	for _, who := range []string{"web", ""} {
		var ends []func()
		for range 3 {
			end, err := r.as(t, who)
			must(t, err)
			ends = append(ends, end)
		}
		if _, err := r.as(t, who); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "3 streams") {
			t.Errorf("%q, one more: %v", who, err)
		}
		if _, err := r.as(t, "other of "+who); err != nil {
			t.Errorf("somebody else: %v", err)
		}
		ends[1]()
		waitFor(testContext(t), t, "a place is free", func() bool { _, err := r.as(t, who); return err == nil })
	}
}

// TestNamesOfOneClient: all streams of an identity ask for so many names at most. A stream that asks for more ends, and its names are free.
func TestNamesOfOneClient(t *testing.T) {
	r := newRig(t, Options{Admit: whoever, MaxWantsOf: 10})
	names := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("s", i))
		}
		return list
	}
	end, err := r.as(t, "web", names(8)...)
	must(t, err)
	if _, err := r.as(t, "web", names(3)...); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "spiffe://t/ns/n/sa/web") {
		t.Errorf("one more: %v", err)
	}
	if _, err := r.as(t, "other", names(10)...); err != nil {
		t.Errorf("somebody else: %v", err)
	}
	if _, err := r.as(t, "web", names(2)...); err != nil {
		t.Errorf("as many as it may: %v", err)
	}
	end()
	waitFor(testContext(t), t, "its names are free", func() bool { _, err := r.as(t, "web", names(8)...); return err == nil })
	waitFor(testContext(t), t, "all streams that were refused have ended", func() bool {
		r.server.clients.mu.Lock()
		defer r.server.clients.mu.Unlock()
		web := r.server.clients.all["spiffe://t/ns/n/sa/web"]
		return web.names == 10 && web.streams == 2
	})
}

// TestNameBytesOfOneClient: the names of all types that the streams of an identity ask for have so many bytes at most. Equal lists count once,
// and lists of ended streams no more.
func TestNameBytesOfOneClient(t *testing.T) {
	r := newRig(t, Options{Admit: whoever, MaxNameBytesOf: 100})
	r.mesh.publish(clusters(1, 1, 1, "x"))
	ask := func(who, letter string) (end func(), err error) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(testContext(t), "who", who))
		stream, err := r.dial(t).DeltaAggregatedResources(ctx)
		must(t, err)
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{ // Recv has the reason
			Node: &corev3.Node{Id: "x"}, TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: []string{strings.Repeat(letter, 60)},
		})
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL()})
		_, err = stream.Recv()
		return func() {
			cancel()
			for err == nil {
				_, err = stream.Recv()
			}
		}, err
	}
	var ends []func()
	for range 3 {
		end, err := ask("web", "a")
		must(t, err)
		ends = append(ends, end)
	}
	if _, err := ask("web", "b"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "120 bytes") {
		t.Errorf("other names: %v", err)
	}
	if _, err := ask("other", "b"); err != nil {
		t.Errorf("somebody else: %v", err)
	}
	for _, end := range ends {
		end()
	}
	waitFor(testContext(t), t, "the bytes are free", func() bool { _, err := ask("web", "b"); return err == nil })
}

// TestPacedConnection checks that the server closes a connection, before any handshake, if its address may not connect now.
func TestPacedConnection(t *testing.T) {
	asked := make(chan net.Addr, 1)
	r := newRig(t, Options{Pace: func(from net.Addr) error {
		asked <- from
		return errors.New("too many")
	}})
	conn, err := (&net.Dialer{}).DialContext(testContext(t), "tcp", r.addr)
	must(t, err)
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("the server sent %d bytes, error %v; want a closed connection", n, err)
	}
	if from := <-asked; from.String() != conn.LocalAddr().String() {
		t.Errorf("asked for %v, want the address of the client %v", from, conn.LocalAddr())
	}
}
