package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	sotwMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

// rawCodec sends and receives bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }

func (r *rig) conn(t *testing.T, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(r.addr, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// rawStream opens a stream of undecoded messages.
func rawStream(t *testing.T, c *grpc.ClientConn, method string) grpc.ClientStream {
	t.Helper()
	s, err := c.NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30))
	must(t, err)
	return s
}

// ending reads a stream to its end.
func ending(s grpc.ClientStream) codes.Code {
	for {
		var b []byte
		if err := s.RecvMsg(&b); err != nil {
			if errors.Is(err, io.EOF) {
				return codes.OK
			}
			return status.Code(err)
		}
	}
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	must(t, err)
	return raw
}

func TestRefusals(t *testing.T) {
	r := newRig(t, Options{})
	r.mesh.publish(clusters(1, 1, 1, "x"))
	cds := resource.Cluster.URL()
	deep := &structpb.Struct{}
	for range 5000 {
		deep = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStructValue(deep)}}
	}
	for rule, c := range map[string]struct {
		method string
		raw    []byte
		want   codes.Code
	}{
		"hostile/no-node":       {deltaMethod, encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: cds}), codes.InvalidArgument},
		"hostile/no-node sotw":  {sotwMethod, encode(t, &discoveryv3.DiscoveryRequest{TypeUrl: cds}), codes.InvalidArgument},
		"hostile/node-id":       {deltaMethod, encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{}, TypeUrl: cds}), codes.InvalidArgument},
		"hostile/garbage":       {deltaMethod, []byte("\xff\xff\xff nothing"), codes.InvalidArgument},
		"hostile/garbage other": {deltaMethod, encode(t, &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: cds, VersionInfo: "old"}), codes.InvalidArgument},
		"hostile/utf8":          {deltaMethod, []byte("\x12\x02\xff\xfe"), codes.InvalidArgument},
		"hostile/metadata-deep": {deltaMethod, encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "a", Metadata: deep}}), codes.InvalidArgument},
		"hostile/metadata-10mb": {
			deltaMethod,
			encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: strings.Repeat("a", 10<<20)}}), codes.ResourceExhausted,
		},
		"hostile/metadata-types": {deltaMethod, encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "a"}})[:4], codes.InvalidArgument},
		"hostile/wrong-method":   {"/envoy.service.discovery.v3.AggregatedDiscoveryService/Nothing", nil, codes.Unimplemented},
	} {
		t.Run(rule, func(t *testing.T) {
			s := rawStream(t, r.conn(t), c.method)
			_ = s.SendMsg(c.raw) // the end may come first
			if got := ending(s); got != c.want {
				t.Errorf("ended with %v, want %v", got, c.want)
			}
		})
	}
}

// TestUnusualRequestsAreServed checks requests that are unusual but valid.
func TestUnusualRequestsAreServed(t *testing.T) {
	r := newRig(t, Options{})
	r.mesh.publish(clusters(1, 1, 1, "x"))
	s, err := r.dial(t).DeltaAggregatedResources(testContext(t))
	must(t, err)
	many := &corev3.Node{Id: "n"}
	for i := range 20_000 { // hostile/node-extensions
		many.Extensions = append(many.Extensions, &corev3.Extension{Name: fmt.Sprint(i)})
	}
	must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: many, TypeUrl: ""})) // hostile/empty-type
	for i := range 10_000 {                                                      // hostile/many-types
		must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: fmt.Sprintf("type.googleapis.com/t%d", i)}))
	}
	var odd []string
	for i := range 100_000 { // hostile/100k-names
		odd = append(odd, fmt.Sprintf("name-%d", i))
	}
	odd = append(odd, "", "\x00\n", strings.Repeat("n", 300_000)) // hostile/odd-names
	must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: odd}))
	for missing := len(odd); missing > 0; {
		m, err := s.Recv()
		must(t, err)
		missing -= len(m.RemovedResources)
		if size := proto.Size(m); size > 256<<10+300_100 {
			t.Fatalf("a response of %d bytes", size)
		}
	}
	must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL()}))
	if m, err := s.Recv(); err != nil || len(m.Resources) != 1 {
		t.Fatalf("got %v, %v", m, err)
	}
}

// TestNotGRPC is hostile/not-grpc.
func TestNotGRPC(t *testing.T) {
	r := newRig(t, Options{})
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "http://"+r.addr+"/", nil)
	must(t, err)
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Errorf("HTTP/1.1 was answered with %s", res.Status)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestCompressed is hostile/gzip: the server refuses a request that would be too large after decompression. (The server links no
// compressor in; this test does, which makes the case harder.)
func TestCompressed(t *testing.T) {
	r := newRig(t, Options{})
	s, err := r.conn(t).NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, deltaMethod,
		grpc.ForceCodecV2(rawCodec{}), grpc.UseCompressor(gzip.Name), grpc.MaxCallSendMsgSize(1<<30))
	must(t, err)
	var before, after runtime.MemStats
	bomb := make([]byte, 24<<20)
	runtime.ReadMemStats(&before)
	_ = s.SendMsg(bomb)
	if code := ending(s); code != codes.ResourceExhausted {
		t.Errorf("ended with %v", code)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 40<<20 {
		t.Errorf("it took %d bytes", took)
	}
}

// TestLongReason is hostile/nack-detail: a NACK with a reason of a megabyte is processed like any other. It is also
// behaviour/6.18-limits: a request above the size limit is refused.
func TestLongReason(t *testing.T) {
	r := newRig(t, Options{MaxReceive: 2 << 20})
	r.mesh.publish(clusters(1, 1, 1, "x"))
	s := rawStream(t, r.conn(t), deltaMethod)
	must(t, s.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})))
	var b []byte
	must(t, s.RecvMsg(&b))
	nack := &discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: resource.Cluster.URL(), ResponseNonce: "1c", ErrorDetail: status.New(codes.Internal, strings.Repeat("no ", 400_000)).Proto(),
	}
	must(t, s.SendMsg(encode(t, nack)))
	r.mesh.publish(clusters(2, 1, 1, "y"))
	must(t, s.RecvMsg(&b))
	if st := r.server.Streams(); len(st) != 1 || len(st[0].Types[resource.Cluster].Rejected) > 16<<10 {
		t.Errorf("status %+v", st)
	}
	must(t, s.SendMsg(make([]byte, 3<<20)))
	if code := ending(s); code != codes.ResourceExhausted {
		t.Errorf("ended with %v", code)
	}
}

// TestNeverReads is load/never-reads and load/never-reads-closed.
func TestNeverReads(t *testing.T) {
	r := newRig(t, Options{WriteTimeout: 500 * time.Millisecond})
	r.mesh.publish(clusters(1, 40, 50_000, "x"))
	silent := rawStream(t, r.conn(t), deltaMethod)
	must(t, silent.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})))
	waitFor(testContext(t), t, "the stream that is not read to be there", func() bool { return len(r.server.Streams()) == 1 })
	good, err := r.dial(t).DeltaAggregatedResources(testContext(t))
	must(t, err)
	must(t, good.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	for n := 0; n < 40; {
		m, err := good.Recv()
		must(t, err)
		n += len(m.Resources)
		must(t, good.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL(), ResponseNonce: m.Nonce}))
	}
	waitFor(testContext(t), t, "the stream that is not read to be closed", func() bool { return len(r.server.Streams()) == 1 })
	r.mesh.publish(clusters(2, 41, 50_000, "x"))
	if m, err := good.Recv(); err != nil || len(m.Resources) != 1 {
		t.Fatalf("got %v, %v", m, err)
	}
	if code := ending(silent); code != codes.Unavailable {
		t.Errorf("closed with %v", code)
	}
}

// TestBigMessageAfterSmallOnes checks that workers write small messages themselves, but not a big one behind them, which may have
// to wait for the client.
func TestBigMessageAfterSmallOnes(t *testing.T) {
	r := newRig(t, Options{WriteTimeout: time.Hour})
	var routes []string
	var puts []omap.Change[omap.Name, *resource.Resource]
	for i := range 8 {
		name := fmt.Sprint("r", i)
		routes = append(routes, name)
		big := &routev3.RouteConfiguration{Name: name, InternalOnlyHeaders: []string{strings.Repeat("x", 200_000)}}
		puts = append(puts, omap.Put(omap.Name(name), resource.New(resource.Route, name, big)))
	}
	conn := r.conn(t)
	for range 8 * runtime.GOMAXPROCS(0) {
		silent := rawStream(t, conn, deltaMethod)
		must(t, silent.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})))
		must(t, silent.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Route.URL(), ResourceNamesSubscribe: routes})))
	}
	subscribed := func(s Status) bool { return s.Types[resource.Route].Subscribed }
	waitFor(testContext(t), t, "the requests to be taken in", func() bool {
		list := r.server.Streams()
		return len(list) == 8*runtime.GOMAXPROCS(0) && allOf(list, subscribed)
	})
	s := clusters(1, 1, 1, "x")
	s.Types[resource.Route] = resource.Layers{omap.With(resources{}, puts...)}
	r.mesh.publish(s) // Now clusters and routes must be sent at the same time.

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a third of what the others have
	defer cancel()
	good, err := r.dial(t).DeltaAggregatedResources(ctx)
	must(t, err)
	must(t, good.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	if m, err := good.Recv(); err != nil || len(m.Resources) != 1 {
		t.Fatalf("got %v, %v", m, err)
	}
}

// TestManySmallMessages checks a client that sends requests again and again without reading the small responses. Together these may
// have to wait, too. The client must not block a worker, and the server must close its stream.
func TestManySmallMessages(t *testing.T) {
	o := &counting{}
	r := newRig(t, Options{WriteTimeout: time.Second, Observer: o})
	r.mesh.publish(clusters(1, 1, 7_000, "x"))
	conn := r.conn(t)
	var asking sync.WaitGroup
	defer asking.Wait()
	again := encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL(), ResourceNamesSubscribe: []string{"c00000"}})
	for range 2 * runtime.GOMAXPROCS(0) {
		silent := rawStream(t, conn, deltaMethod)
		asking.Go(func() {
			for silent.SendMsg(again) == nil {
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	waitFor(ctx, t, "a stream to be sent more than gRPC accepts", func() bool { return o.load(&o.sent) >= 15 })
	good, err := r.dial(t).DeltaAggregatedResources(ctx)
	must(t, err)
	must(t, good.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	if m, err := good.Recv(); err != nil || len(m.Resources) != 1 {
		t.Fatalf("got %v, %v", m, err)
	}
	waitFor(ctx, t, "those that do not read to be closed", func() bool { return len(r.server.Streams()) == 1 })
	must(t, conn.Close())
}

func allOf(list []Status, ok func(Status) bool) bool {
	return !slices.ContainsFunc(list, func(s Status) bool { return !ok(s) })
}

// TestManyStreams is load/500-streams and load/cancelled: ended streams leave nothing behind.
func TestManyStreams(t *testing.T) {
	r := newRig(t, Options{})
	r.mesh.publish(clusters(1, 100, 1000, "x"))
	c := r.conn(t)
	warm := rawStream(t, c, deltaMethod)
	must(t, warm.CloseSend())
	ending(warm)
	before := runtime.NumGoroutine()
	var group sync.WaitGroup
	for i := range 500 {
		group.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, deltaMethod, grpc.ForceCodecV2(rawCodec{}))
			if err != nil {
				t.Error(err)
				return
			}
			raw, _ := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})
			_ = s.SendMsg(raw)
			if i%2 == 0 {
				var b []byte
				_ = s.RecvMsg(&b)
			}
		})
	}
	group.Wait()
	waitFor(testContext(t), t, "streams and goroutines to end", func() bool {
		return len(r.server.Streams()) == 0 && runtime.NumGoroutine() <= before+5
	})
}

// TestDrain is lifecycle/graceful and lifecycle/graceful-code.
func TestDrain(t *testing.T) {
	r := newRig(t, Options{})
	r.mesh.publish(clusters(1, 1, 1, "x"))
	s := rawStream(t, r.conn(t), sotwMethod)
	must(t, s.SendMsg(encode(t, &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})))
	var b []byte
	must(t, s.RecvMsg(&b))
	r.server.Drain(t.Context())
	if code := ending(s); code != codes.Unavailable {
		t.Errorf("ended with %v", code)
	}
	late := rawStream(t, r.conn(t), sotwMethod)
	if code := ending(late); code != codes.Unavailable {
		t.Errorf("a new stream ended with %v", code)
	}
	r.grpc.GracefulStop()
}

// TestDrainSpreadsStreams: clients must not all connect to the other replicas at the same moment, and two clients must not wait for
// the whole time that draining may take.
func TestDrainSpreadsStreams(t *testing.T) {
	for _, c := range []struct {
		streams     int
		over        time.Duration
		least, most time.Duration
	}{{1, time.Minute, 0, time.Second}, {4, time.Minute, 60 * time.Millisecond, 20 * time.Second}, {50, 200 * time.Millisecond, 150 * time.Millisecond, 20 * time.Second}} {
		r := newRig(t, Options{})
		r.mesh.publish(clusters(1, 1, 1, "x"))
		var all []grpc.ClientStream
		for range c.streams {
			s := rawStream(t, r.conn(t), sotwMethod)
			must(t, s.SendMsg(encode(t, &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})))
			var b []byte
			must(t, s.RecvMsg(&b))
			all = append(all, s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), c.over)
		begin := time.Now()
		r.server.Drain(ctx)
		took := time.Since(begin)
		cancel()
		if took < c.least || took > c.most {
			t.Errorf("%d streams ended within %v, want %v to %v", c.streams, took, c.least, c.most)
		}
		for _, s := range all {
			if code := ending(s); code != codes.Unavailable {
				t.Errorf("a stream ended with %v", code)
			}
		}
	}
}

type counting struct {
	silentObserver
	mu                         sync.Mutex
	sent, acked, rejected      int
	panics, expired, unknown   int
	opened, closed, convergeds int
}

func (c *counting) count(n *int)    { c.mu.Lock(); *n++; c.mu.Unlock() }
func (c *counting) load(n *int) int { c.mu.Lock(); defer c.mu.Unlock(); return *n }

func (c *counting) Opened(protocol.Variant)                              { c.count(&c.opened) }
func (c *counting) Closed(protocol.Variant, codes.Code)                  { c.count(&c.closed) }
func (c *counting) Sent(resource.Type, *response.Message, time.Duration) { c.count(&c.sent) }
func (c *counting) Rejected(resource.Type, string, string)               { c.count(&c.rejected) }
func (c *counting) Expired(resource.Type)                                { c.count(&c.expired) }
func (c *counting) Unknown(string)                                       { c.count(&c.unknown) }
func (c *counting) Panicked()                                            { c.count(&c.panics) }
func (c *counting) Acked(_ resource.Type, _ *resource.State, d time.Duration) {
	c.count(&c.acked)
	if d > 0 {
		c.count(&c.convergeds)
	}
}

// TestPanicEndsOneStream also covers the calls of the Observer, Status, and the report of pins to the mesh.
func TestPanicEndsOneStream(t *testing.T) {
	o := &counting{}
	r := newRig(t, Options{Observer: o})
	r.mesh.publish(clusters(1, 2, 1, "x"))
	good, err := r.dial(t).DeltaAggregatedResources(testContext(t))
	must(t, err)
	must(t, good.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	m, err := good.Recv()
	must(t, err)
	must(t, good.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL(), ResponseNonce: m.Nonce}))

	bad := rawStream(t, r.conn(t), deltaMethod)
	must(t, bad.SendMsg(encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "panic"}})))
	if code := ending(bad); code != codes.Internal {
		t.Errorf("ended with %v", code)
	}
	r.mesh.publish(clusters(2, 2, 1, "y"))
	m, err = good.Recv()
	must(t, err)
	nack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL(), ResponseNonce: m.Nonce, ErrorDetail: status.New(codes.Internal, "c00000 is bad").Proto()}
	must(t, good.Send(nack))
	if m, err = good.Recv(); err != nil || len(m.Resources) != 1 || m.Resources[0].Name != "c00001" {
		t.Fatalf("got %v, %v", m, err)
	}
	st := r.server.Streams()
	if len(st) != 1 || st[0].Node != node.Id || st[0].Types[resource.Cluster].Rejected == "" || st[0].Types[resource.Cluster].HeldBack != 1 {
		t.Errorf("status %+v", st)
	}
	r.mesh.mu.Lock()
	if len(r.mesh.pins) != 1 || r.mesh.pins[0].Name != "c00000" || r.mesh.pins[0].Held == nil {
		t.Errorf("the mesh received the pins %v", r.mesh.pins)
	}
	r.mesh.mu.Unlock()
	// A message is counted when gRPC has taken it, which its client may be faster than.
	waitFor(testContext(t), t, "the messages to be counted", func() bool { return o.load(&o.sent) >= 3 })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.panics != 1 || o.acked != 1 || o.rejected != 1 || o.convergeds != 1 || o.opened != 2 {
		t.Errorf("observed %+v", o)
	}
}

// TestOtherServices checks that other services of the gRPC server use the protobuf codec.
func TestOtherServices(t *testing.T) {
	r := &rig{mesh: &testMesh{streams: map[*Stream]bool{}}}
	srv := New(r.mesh, Options{Admit: func(context.Context) (identity.Caller, error) {
		return identity.Caller{}, status.Error(codes.Unavailable, "starting")
	}})
	g := grpc.NewServer(srv.GRPC()...)
	srv.Register(g)
	healthpb.RegisterHealthServer(g, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.addr = l.Addr().String()
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	res, err := healthpb.NewHealthClient(r.conn(t)).Check(testContext(t), &healthpb.HealthCheckRequest{})
	if err != nil || res.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("got %v, %v", res, err)
	}
	// behaviour/6.1-admission: refused before anything is read.
	if code := ending(rawStream(t, r.conn(t), deltaMethod)); code != codes.Unavailable {
		t.Errorf("ended with %v", code)
	}
}
