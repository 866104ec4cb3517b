package server

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// inUse is the memory that is held: heap and stacks, after collections that let stacks shrink.
func inUse() int {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// bare is a gRPC server whose handler only receives.
func bare(t *testing.T) string {
	t.Helper()
	g := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()))
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bare", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				var in received
				if err := s.RecvMsg(&in); err != nil {
					return err
				}
				if err := s.SendMsg(&encoded{}); err != nil {
					return err
				}
			}
		}}},
	}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return l.Addr().String()
}

// settle opens n streams, lets say have each conversation, and returns what a stream holds then.
func settle(t *testing.T, c *grpc.ClientConn, n int, method string, say func(s grpc.ClientStream)) int {
	t.Helper()
	warm := rawStream(t, c, method)
	say(warm)
	before := inUse()
	keep := make([]grpc.ClientStream, n)
	for i := range keep {
		keep[i] = rawStream(t, c, method)
		say(keep[i])
	}
	held := (inUse() - before) / n
	runtime.KeepAlive(keep)
	return held
}

// alone is the environment variable of a process that runs only one test.
const alone = "TEST_ALONE"

// TestMemoryPerStream checks that a settled stream needs little more memory than a bare gRPC stream, however large its
// subscription is. It runs in a process of its own, because the stacks and buffers that other tests leave would be counted in.
func TestMemoryPerStream(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's shadow memory is counted in")
	}
	if os.Getenv(alone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryPerStream$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const streams = 200
	var none []byte
	addr := bare(t)
	plain := settle(t, (&rig{addr: addr}).conn(t), streams, "/bare/Stream", func(s grpc.ClientStream) {
		must(t, s.SendMsg([]byte("x")))
		must(t, s.RecvMsg(&none))
	})
	var held []int
	for _, services := range []int{100, 3000} {
		held = append(held, settledStream(t, streams, services)-plain)
	}
	t.Logf("a bare stream holds %d bytes; beyond that one with 100 services %d, with 3,000 %d", plain, held[0], held[1])
	for _, h := range held {
		if h > 8<<10 {
			t.Errorf("a stream holds %d bytes more than a bare one", h)
		}
	}
}

func settledStream(t *testing.T, streams, services int) int {
	r := newRig(t, Options{})
	s := clusters(1, services, 10, "x")
	r.mesh.publish(s)
	var list []string
	var puts []omap.Change[omap.Name, *resource.Resource]
	for c := range s.Types[resource.Cluster].All() {
		list = append(list, c.Name())
		puts = append(puts, omap.Put(omap.Name(c.Name()), resource.New(resource.Endpoint, c.Name(), &endpointv3.ClusterLoadAssignment{ClusterName: c.Name()})))
	}
	full := *s
	full.Types[resource.Endpoint] = resource.Layers{omap.With(resources{}, puts...)}
	r.mesh.publish(&full)
	return settle(t, r.conn(t), streams, deltaMethod, func(g grpc.ClientStream) {
		exchange(t, g, resource.Cluster, nil, services)
		exchange(t, g, resource.Endpoint, list, services)
	})
}

// exchange asks for a type and acknowledges until everything came.
func exchange(t *testing.T, g grpc.ClientStream, typ resource.Type, list []string, want int) {
	t.Helper()
	must(t, g.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL(), ResourceNamesSubscribe: list})))
	for n := 0; n < want; {
		var b []byte
		must(t, g.RecvMsg(&b))
		var m discoveryv3.DeltaDiscoveryResponse
		must(t, proto.Unmarshal(b, &m))
		n += len(m.Resources)
		must(t, g.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ.URL(), ResponseNonce: m.Nonce})))
	}
}
