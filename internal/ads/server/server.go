package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	// The descriptor of the service, for reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/pilotmesh/pilot/internal/ads/gate"
	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// Options of a server. The zero value of every field means its default.
type Options struct {
	// ControlPlane is the identifier in responses; empty for none.
	ControlPlane string
	// WriteTimeout is how long a client may leave a message unread. The server closes a stream whose client has not read for
	// this long (default 10 s).
	WriteTimeout time.Duration
	// BigSends is the number of streams that may write a big message at the same time (default 8).
	BigSends int
	// Arrivals is the number of streams whose first requests the server reads at the same time (default 256); the streams of one client have at most
	// half of these places. A client that connects again names the versions of all its resources. In a mesh of 10,000 services these are 2.4 MB, and
	// 24 GB if 10,000 clients send them at the same time.
	Arrivals int
	// MaxReceive is the largest size of a request in bytes (default 8 MiB, which is enough for 110,000 names with versions).
	MaxReceive int
	// MaxStreams is the largest number of streams per connection (default 250,000).
	MaxStreams uint32
	// MaxStreamsOf is the largest number of streams of one identity, or of one address whose clients have shown none (default 20,000: a
	// proxy and its agent have up to four).
	MaxStreamsOf int
	// MaxWantsOf is the largest number of names, such as names of secrets, that the streams of one of these ask for (default 250,000).
	MaxWantsOf int
	// MaxHostsOf is the largest number of virtual hosts on demand that the streams of one of these ask for (default 1,000,000). Further
	// names are answered with nothing, and the stream does not end.
	MaxHostsOf int
	// MaxNameBytesOf is the largest size in bytes of the names of other resources that the streams of one of these ask for (default
	// 256 MiB). Equal lists of names count once.
	MaxNameBytesOf int
	// MaxIdle is the largest number of connections without a stream, and MaxIdleOf the largest number from one address (default 10,000 and 1,000).
	MaxIdle, MaxIdleOf int
	// MaxConnectionAge is the age at which the server closes a connection, so that clients spread over the replicas again
	// (default: never).
	MaxConnectionAge time.Duration
	// Admit is called before anything is read from a stream, and returns who the client is. An error ends the stream (default: all
	// streams are admitted, and no client is known).
	Admit func(ctx context.Context) (identity.Caller, error)
	// Revoked returns an error if a certificate of the chains that TLS has verified is revoked now (default: none ever is).
	Revoked func(chains [][]*x509.Certificate) error
	// Pace returns when a connection from an address may begin its TLS handshake, or an error that closes it (default: at once).
	Pace func(from net.Addr) error
	// Pages answers requests for debug pages (default: such requests are of an unknown type).
	Pages PagesFunc
	// Configuration admits clients that read configuration (default: such clients count as proxies).
	Configuration ConfigurationFunc
	// Observer receives events (default: none).
	Observer Observer
	// Log is the logger (default: none).
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.BigSends <= 0 {
		o.BigSends = 8
	}
	if o.Arrivals <= 0 {
		o.Arrivals = 256
	}
	if o.MaxReceive <= 0 {
		o.MaxReceive = 8 << 20
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 100_000
	}
	if o.MaxStreamsOf <= 0 {
		o.MaxStreamsOf = 20_000
	}
	if o.MaxWantsOf <= 0 {
		o.MaxWantsOf = 250_000
	}
	if o.MaxHostsOf <= 0 {
		o.MaxHostsOf = 1_000_000
	}
	if o.MaxNameBytesOf <= 0 {
		o.MaxNameBytesOf = 256 << 20
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = 10_000
	}
	if o.MaxIdleOf <= 0 {
		o.MaxIdleOf = 1000
	}
	if o.Pace == nil {
		o.Pace = func(net.Addr) error { return nil }
	}
	if o.Admit == nil {
		o.Admit = func(context.Context) (identity.Caller, error) { return identity.Caller{}, nil }
	}
	if o.Observer == nil {
		o.Observer = silentObserver{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// writeBuffer is the size of gRPC's write buffer in bytes.
const writeBuffer = 128 << 10

// readBuffer is the size of gRPC's read buffer in bytes.
const readBuffer = 4 << 10

// gatePatience is how long a stream may keep its place at the gate.
const gatePatience = 50 * time.Millisecond

// unacknowledgedAfter is how long a client may withhold an acknowledgement before the user is informed. Envoy resolves names and
// fetches secrets in less time, or not at all.
const unacknowledgedAfter = 10 * time.Second

// Server serves ADS. Create a gRPC server with the options of GRPC, call Register with it, and keep Run running.
type Server struct {
	mesh    Mesh
	options Options
	shared  *protocol.Shared
	gate    *gate.Gate
	// arriving has the streams whose first requests the server reads.
	arriving *gate.Gate
	// quick has the settled streams that wait for a worker, and slow all others. Each ring has its own workers.
	quick, slow *ring
	// certified has the connections whose clients have shown a certificate.
	certified certified
	clients   clients
	idlers    idlers

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
		gate: gate.New(o.BigSends, o.BigSends, gatePatience), arriving: gate.New(o.Arrivals, max(1, o.Arrivals/2), arrivalPatience),
		streams: map[uint64]*Stream{},
		idlers:  idlers{most: o.MaxIdle, mostOf: o.MaxIdleOf, crowded: o.Observer.Crowded},
		quick:   newRing(workers), slow: newRing(max(1, workers/2)),
	}
}

// GRPC returns the options with which a gRPC server without TLS must be created.
func (s *Server) GRPC() []grpc.ServerOption { return s.SecureGRPC(nil) }

// SecureGRPC returns the options with which a gRPC server with these settings of TLS must be created.
func (s *Server) SecureGRPC(secure *tls.Config) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		// A route configuration has 200 to 500 KB. Fewer and larger writes save a fifth of the cost of sending it. The buffers
		// are shared, so that idle connections have none.
		grpc.WriteBufferSize(writeBuffer),
		// Each connection has a buffer for reading as long as it lives. What clients send is small, except for the versions of a client that connects again.
		grpc.ReadBufferSize(readBuffer),
		grpc.InTapHandle(abortable),
		grpc.Creds(s.transport(secure)),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.ChainUnaryInterceptor(busy),
		grpc.MaxConcurrentStreams(s.options.MaxStreams),
		grpc.MaxRecvMsgSize(s.options.MaxReceive),
		// Envoy pings rarely. The limit only excludes clients that ping all the time.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// A peer that disappeared without closing the connection is noticed within 40 s.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second,
			MaxConnectionAge: s.options.MaxConnectionAge, MaxConnectionAgeGrace: 10 * time.Second, MaxConnectionIdle: IdleTime,
		}),
	}
}

// Register adds the service to a gRPC server that was created with the options of GRPC.
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

// abortKey is the context key of the function that cancels a stream.
type abortKey struct{}

// abortable gives each stream a context that can be cancelled from outside its handler. The transport waits on this context, so
// its cancellation ends a receive, and a write that waits for flow control. The client then sees Canceled, whatever the cause.
// Without it each stream would need a second goroutine that receives while the first one waits to return, which costs
// 8 KiB of stack per stream.
func abortable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, abort := context.WithCancel(ctx)
	return context.WithValue(ctx, abortKey{}, abort), nil
}

// serve is the handler of one stream.
func (s *Server) serve(v protocol.Variant, g grpc.ServerStream) (err error) {
	ctx := g.Context()
	caller, err := s.options.Admit(ctx)
	if err != nil {
		return err
	}
	abort, ok := ctx.Value(abortKey{}).(context.CancelFunc)
	if !ok {
		return status.Error(codes.Internal, "the gRPC server was not made with the options of Server.GRPC")
	}
	client := clientOf(ctx, caller)
	held, err := s.clients.enter(client, s.options.MaxStreamsOf)
	if err != nil {
		return err
	}
	defer s.clients.leave(held)
	stream := &Stream{
		client: client, held: held, server: s, grpc: g, variant: v, opened: time.Now(), abort: abort, conn: connectionOf(ctx),
		requests: make(chan queuedRequest, 1), core: protocol.NewCore(s.shared, v), caller: caller, alone: aloneFor(ctx),
	}
	if !caller.Expires.IsZero() {
		expiry := time.AfterFunc(time.Until(caller.Expires), stream.expire)
		defer expiry.Stop()
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

// clientOf names the client of a stream.
func clientOf(ctx context.Context, caller identity.Caller) string {
	if !caller.IsZero() {
		return caller.String()
	}
	if p, ok := peer.FromContext(ctx); ok {
		if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
			return identity.Network(host)
		}
		return p.Addr.String()
	}
	return "somebody"
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

// all returns all streams.
func (s *Server) all() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Stream, 0, len(s.streams))
	for _, stream := range s.streams {
		list = append(list, stream)
	}
	return list
}

// Streams describes all streams but those for debug pages, in no order.
func (s *Server) Streams() []Status {
	var list []Status
	for _, stream := range s.all() {
		if !stream.pages.Load() {
			list = append(list, stream.Status())
		}
	}
	return list
}

// drainPace is the longest time between the ends of two successive streams while the server drains.
const drainPace = 20 * time.Millisecond

// Drain refuses new streams, and ends the others and their connections one after the other, so that their clients do not connect
// to the other replicas all at the same moment. Few streams end every 20 ms, and many evenly over nine tenths of the time until the
// deadline of ctx. When ctx ends, the rest ends at once. Stop the gRPC server while Drain runs, so that it accepts no connection.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	streams := s.all()
	pace := drainPace
	if deadline, ok := ctx.Deadline(); ok && len(streams) > 0 {
		pace = min(pace, time.Until(deadline)*9/10/time.Duration(len(streams)))
	}
	next := time.Now()
	for _, stream := range streams {
		wait(ctx, next)
		stream.conn.close()
		stream.end(errDraining())
		next = next.Add(pace)
	}
}

// wait waits for a point in time, or for the end of ctx.
func wait(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Run processes requests and published states, and closes streams whose client does not read, until ctx ends. Without it the
// server accepts streams but never answers.
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

// sweep runs about every second. It closes streams whose client does not read, reports resources whose acknowledgement is
// withheld, and drops unused results.
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
				stream.reportUnacknowledged(now.Add(-unacknowledgedAfter))
				if stream.stuck(now, s.options.WriteTimeout) {
					s.options.Observer.WriteTimeout()
					stream.conn.abandon()
					stream.end(status.Errorf(codes.Unavailable, "the client has not read for %v; connect again", s.options.WriteTimeout))
				}
			}
		}
	}
}

// aloneHeader is the metadata in which an agent reports for how long it could not reach any control plane.
const aloneHeader = "pilot-alone-for"

// aloneFor returns the duration in that metadata; 0 if there is none, or no valid one.
func aloneFor(ctx context.Context) time.Duration {
	for _, text := range metadata.ValueFromIncomingContext(ctx, aloneHeader) {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d
		}
	}
	return 0
}
