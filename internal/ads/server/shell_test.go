package server

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testMesh gives every stream the same state.
type testMesh struct {
	mu      sync.Mutex
	state   *resource.State
	streams map[*Stream]bool
	pins    []reject.Pin
	// demand makes streams send virtual hosts on demand, and full are the reasons for which some were refused.
	demand bool
	full   []string
}

type testAttachment struct {
	mesh   *testMesh
	stream *Stream
}

func (m *testMesh) Connect(_ context.Context, node *corev3.Node, s *Stream) (Attachment, error) {
	if node.GetId() == "panic" {
		panic("asked for")
	}
	if node.GetId() == "" {
		return nil, fmt.Errorf("the node has no id")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[s] = true
	if m.demand {
		s.SplitRoutes()
		s.DemandHosts()
	}
	if m.state != nil {
		s.Update(m.state)
	}
	return testAttachment{m, s}, nil
}

func (m *testMesh) publish(s *resource.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	for stream := range m.streams {
		stream.Update(s)
	}
}

func (a testAttachment) ID() string { return fmt.Sprint(a.stream.id) }

// Want answers every name but "none" with an extension of that name.
func (a testAttachment) Want(t resource.Type, names, _ []string) {
	for _, name := range names {
		answer := protocol.Answer{Type: t, Name: name}
		if name != "none" {
			answer.Resource = resource.New(t, name, &corev3.TypedExtensionConfig{Name: name})
		}
		a.stream.Answer([]protocol.Answer{answer})
	}
}

func (a testAttachment) Refuse(resource.Type, []string, string) {}

func (a testAttachment) Health(bool, string) {}

func (a testAttachment) Applied([]protocol.Warming, protocol.Draining) {}

func (a testAttachment) NoteFull(reason string) {
	a.mesh.mu.Lock()
	defer a.mesh.mu.Unlock()
	a.mesh.full = append(a.mesh.full, reason)
}

func (a testAttachment) NoteUnacknowledged([]protocol.Unacknowledged) {}

func (a testAttachment) Pin(pins []reject.Pin, _ string) {
	a.mesh.mu.Lock()
	defer a.mesh.mu.Unlock()
	a.mesh.pins = append(a.mesh.pins, pins...)
}

func (a testAttachment) Close() {
	a.mesh.mu.Lock()
	defer a.mesh.mu.Unlock()
	delete(a.mesh.streams, a.stream)
}

// rig is a server on a loopback port.
type rig struct {
	mesh   *testMesh
	server *Server
	grpc   *grpc.Server
	addr   string
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{mesh: &testMesh{streams: map[*Stream]bool{}}}
	r.server = New(r.mesh, o)
	r.grpc = grpc.NewServer(r.server.GRPC()...)
	r.server.Register(r.grpc)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = r.server.Run(ctx) })
	group.Go(func() { _ = r.grpc.Serve(l) })
	t.Cleanup(func() {
		cancel()
		r.server.Drain(ctx)
		r.grpc.Stop()
		group.Wait()
	})
	return r
}

func (r *rig) dial(t *testing.T) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	c, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(c)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type resources = omap.Map[omap.Name, *resource.Resource]

// clusters makes a state of n clusters with about size bytes each.
func clusters(rev store.Revision, n, size int, mark string) *resource.State {
	var puts []omap.Change[omap.Name, *resource.Resource]
	for i := range n {
		name := fmt.Sprintf("c%05d", i)
		msg := &clusterv3.Cluster{Name: name, AltStatName: mark + string(make([]byte, size))}
		puts = append(puts, omap.Put(omap.Name(name), resource.New(resource.Cluster, name, msg)))
	}
	s := &resource.State{Revision: rev, Published: time.Now()}
	s.Types[resource.Cluster] = resource.Layers{omap.With(resources{}, puts...)}
	return s
}

var node = &corev3.Node{Id: "sidecar~10.0.0.1~a.b~b.svc.cluster.local"}

func TestDeltaOverGRPC(t *testing.T) {
	r := newRig(t, Options{ControlPlane: "test"})
	r.mesh.publish(clusters(1, 3, 10, "x"))
	stream, err := r.dial(t).DeltaAggregatedResources(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	must(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	res, err := stream.Recv()
	must(t, err)
	if len(res.Resources) != 3 || res.GetSystemVersionInfo() != "1" || res.GetControlPlane().GetIdentifier() != "test" {
		t.Fatalf("got %v", res)
	}
	for _, got := range res.Resources {
		var c clusterv3.Cluster
		must(t, got.GetResource().UnmarshalTo(&c))
		if c.Name != got.Name || got.Version == "" {
			t.Fatalf("got %v", got)
		}
	}
	must(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL(), ResponseNonce: res.Nonce}))
	r.mesh.publish(clusters(2, 4, 10, "x"))
	res, err = stream.Recv()
	must(t, err)
	if len(res.Resources) != 1 || res.Resources[0].Name != "c00003" {
		t.Fatalf("got %v", res)
	}
}

// TestStateOfTheWorldOverGRPC is lifecycle/half-closed, too.
func TestStateOfTheWorldOverGRPC(t *testing.T) {
	r := newRig(t, Options{})
	r.mesh.publish(clusters(1, 3, 100_000, "x")) // large enough to be gathered
	stream, err := r.dial(t).StreamAggregatedResources(testContext(t))
	must(t, err)
	must(t, stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	res, err := stream.Recv()
	must(t, err)
	if len(res.Resources) != 3 || res.GetVersionInfo() == "" || res.GetTypeUrl() != resource.Cluster.URL() {
		t.Fatalf("got %d resources, version %q", len(res.Resources), res.VersionInfo)
	}
	must(t, stream.CloseSend())
	if _, err := stream.Recv(); err == nil || err.Error() != "EOF" {
		t.Fatalf("half-close ended with %v", err)
	}
}

// waitFor waits until ok returns true. It reports what if ctx ends before that.
func waitFor(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatalf("waited in vain for %s", what)
		}
		runtime.Gosched()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
