package server

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	// The descriptor of the service, for reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/pilotmesh/pilot/internal/xds/gate"
	"github.com/pilotmesh/pilot/internal/xds/protocol"
)

// Options of a server. The zero value of every field means its default.
type Options struct {
	// ControlPlane is the identifier responses carry; none if empty.
	ControlPlane string
	// WriteTimeout is how long a write may be stuck before the stream is closed (default 10 s).
	WriteTimeout time.Duration
	// BigSends is the number of streams that write a big message at a time (default 8).
	BigSends int
	// MaxReceive is the largest request (default 8 MiB: 110,000 names with versions).
	MaxReceive int
	// MaxStreams is the number of streams per connection (default 100,000).
	MaxStreams uint32
	// MaxConnectionAge closes connections so that clients spread anew (default: never).
	MaxConnectionAge time.Duration
	// Admit is asked before anything is read from a stream; an error ends it. Default: everybody comes in.
	Admit func(ctx context.Context) error
	// Observer is told what happens (default: nobody is).
	Observer Observer
	// Log is where the server logs (default: nowhere).
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.BigSends <= 0 {
		o.BigSends = 8
	}
	if o.MaxReceive <= 0 {
		o.MaxReceive = 8 << 20
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 100_000
	}
	if o.Admit == nil {
		o.Admit = func(context.Context) error { return nil }
	}
	if o.Observer == nil {
		o.Observer = Silent{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// writeBuffer is how much is handed to the network at once, in bytes.
const writeBuffer = 128 << 10

// gatePatience is how long a stream may keep others from a big write.
const gatePatience = 50 * time.Millisecond

// withheldAfter is how long an acknowledgement may stay away before the user is told. An Envoy resolves names and fetches
// secrets in less, or not at all.
const withheldAfter = 10 * time.Second

// Server serves ADS. Make a gRPC server with its GRPC options, Register it there, and keep Run running.
type Server struct {
	mesh    Mesh
	options Options
	shared  *protocol.Shared
	gate    *gate.Gate
	// Streams that something has come for: those that are settled, and all others. Each ring has
	// workers of its own.
	quick, slow *ring

	mu       sync.Mutex
	streams  map[uint64]*Stream
	lastID   uint64
	draining bool
}

// New returns a server for mesh.
func New(mesh Mesh, o Options) *Server {
	o = o.withDefaults()
	workers := runtime.GOMAXPROCS(0)
	return &Server{
		mesh: mesh, options: o, shared: protocol.NewShared(o.ControlPlane),
		gate: gate.New(o.BigSends, gatePatience), streams: map[uint64]*Stream{},
		quick: newRing(workers), slow: newRing(max(1, workers/2)),
	}
}

// GRPC is how the gRPC server must be made.
func (s *Server) GRPC() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		// A route configuration is 200 to 500 KB: fewer and larger writes save a fifth of what sending it costs. The buffers
		// are shared, so that idle connections hold none.
		grpc.WriteBufferSize(writeBuffer),
		grpc.InTapHandle(abortable),
		grpc.Creds(plaintext()),
		grpc.MaxConcurrentStreams(s.options.MaxStreams),
		grpc.MaxRecvMsgSize(s.options.MaxReceive),
		// Envoy pings rarely; the enforced minimum only has to keep out those who do nothing else.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// A peer that vanished without a word is noticed within 40 s.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second,
			MaxConnectionAge: s.options.MaxConnectionAge, MaxConnectionAgeGrace: 10 * time.Second,
		}),
	}
}

// Register adds the service to a gRPC server made with the options of GRPC.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	handler := func(v protocol.Variant) grpc.StreamHandler {
		return func(_ any, g grpc.ServerStream) error { return s.serve(v, g) }
	}
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "StreamAggregatedResources", Handler: handler(protocol.StateOfTheWorld), ServerStreams: true, ClientStreams: true},
			{StreamName: "DeltaAggregatedResources", Handler: handler(protocol.Delta), ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, s)
}

// abortKey is where a stream's context keeps the function that ends it.
type abortKey struct{}

// abortable gives each stream a context that can be cancelled from outside its handler. It is the one the transport waits
// on, so cancelling it ends a receive and a write that is stuck in flow control; its client sees Canceled, whatever the
// cause. Without it a stream would need a goroutine that receives beside the one that can return: 8 KiB of stack, for
// each stream, all the time.
func abortable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, abort := context.WithCancel(ctx)
	return context.WithValue(ctx, abortKey{}, abort), nil
}

// serve is the handler of one stream.
func (s *Server) serve(v protocol.Variant, g grpc.ServerStream) (err error) {
	ctx := g.Context()
	if err := s.options.Admit(ctx); err != nil {
		return err
	}
	abort, ok := ctx.Value(abortKey{}).(context.CancelFunc)
	if !ok {
		return status.Error(codes.Internal, "the gRPC server was not made with the options of Server.GRPC")
	}
	stream := &Stream{
		server: s, grpc: g, variant: v, opened: time.Now(), abort: abort, conn: connectionOf(ctx),
		asked: make(chan asked, 1), core: protocol.NewCore(s.shared, v),
	}
	if !s.add(stream) {
		return errDraining()
	}
	s.options.Observer.Opened(v)
	stream.conn.opened()
	defer func() {
		stream.conn.closed()
		s.remove(stream)
		stream.detach()
		s.options.Observer.Closed(v, status.Code(err))
	}()
	stream.receive()
	return stream.cause
}

func errDraining() error {
	return status.Error(codes.Unavailable, "the control plane is shutting down; connect to another replica or again later")
}

func (s *Server) add(stream *Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.lastID++
	stream.id = s.lastID
	s.streams[stream.id] = stream
	return true
}

func (s *Server) remove(stream *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream.id)
}

// all lists the streams.
func (s *Server) all() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Stream, 0, len(s.streams))
	for _, stream := range s.streams {
		list = append(list, stream)
	}
	return list
}

// Streams describes all streams, in no order.
func (s *Server) Streams() []Status {
	var list []Status
	for _, stream := range s.all() {
		list = append(list, stream.Status())
	}
	return list
}

// Drain ends all streams with their connections, so that their clients go elsewhere, and refuses new ones. Stop the gRPC
// server after it.
func (s *Server) Drain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for _, stream := range s.all() {
		stream.conn.cut()
		stream.end(errDraining())
	}
}

// Run takes in what comes, requests and published states, and watches over stuck writes until ctx ends. Without it
// streams are accepted, but nothing is ever answered.
func (s *Server) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for _, r := range []*ring{s.quick, s.slow} {
		for range cap(r.wake) {
			group.Go(func() { r.work(ctx) })
		}
	}
	group.Go(func() { s.sweep(ctx) })
	group.Wait()
	return nil
}

// sweep closes streams whose client does not read, reports what clients withhold the acknowledgement of, and drops results
// nobody asks for any more.
func (s *Server) sweep(ctx context.Context) {
	ticker := time.NewTicker(min(time.Second, s.options.WriteTimeout/4))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.shared.Forget()
			for _, stream := range s.all() {
				stream.report(now.Add(-withheldAfter))
				if stream.stuck(now, s.options.WriteTimeout) {
					s.options.Observer.WriteTimeout()
					stream.conn.abandon()
					stream.end(status.Errorf(codes.Unavailable, "nothing was read for %v; connect again", s.options.WriteTimeout))
				}
			}
		}
	}
}
