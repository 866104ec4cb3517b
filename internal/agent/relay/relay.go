// Package relay passes Envoy's xDS stream on to the control plane. Envoy speaks plain gRPC on a unix socket that only its user can open;
// the relay speaks TLS, or plaintext where it is configured, and authenticates as the agent.
//
// It keeps what Envoy acknowledges as the last known good configuration (package lastgood). As soon as that is complete (coverage), the
// relay sends it at once to an Envoy that starts again, and the control plane receives Envoy's versions, so that it sends only differences.
// While the control plane cannot be reached, the relay answers from the last known good configuration alone, if that is complete, and tries
// to reach the control plane again, with growing pauses (backoff). Changes of resources that control access are on disk before the control
// plane receives Envoy's acknowledgement of them.
//
// If Envoy refuses a resource of the last known good configuration (refused), the resource is set aside, and the relay ends Envoy's stream. On
// the next stream Envoy lists its resources itself, and the control plane sends the missing one and receives Envoy's refusal. Without a control
// plane Envoy gets the other resources at once, and the refused one again, with growing pauses. A listener whose port another process has is
// requested again in the same way.
//
// Virtual hosts that are resources of their own are kept, too, and sent together with their route configuration (hosts).
//
// The relay does the same between two streams that the control plane ends at once. As soon as the control plane can be reached, the relay
// ends Envoy's stream. Envoy then opens another one and lists its resources itself.
//
// Envoy acknowledges some resources before it uses them: it is still warming them. Connections that were opened before a change of a listener
// keep its former filters until Envoy has drained them. The relay asks Envoy for both, and reports them to the control plane (applied).
//
// Invariants: Each stream of Envoy has a connection of its own, so a stream that begins shows the newest certificate or token. Messages of
// types that are not kept pass through unread; responses of the control plane are passed on unchanged, in order. A side that does not read
// holds back the other one. The control plane learns which resources are warming before it learns that Envoy has acknowledged them.
//
// The exception are extensions with a remote module: the relay fetches it (package wasm), and sends Envoy a file of the host. Until the
// module is fetched, all other types flow. If the fetch fails, Envoy keeps the last good version of the extension or gets a stand-in filter, the
// control plane gets a NACK with the reason, and the agent tries again. Pull secrets reach neither Envoy nor a file.
//
// Trust bundles are for the agent itself: the relay asks for them on Envoy's stream, and Envoy does not see them. The relay also reports
// the health of the workload: on each stream, after the first request and whenever it changes.
//
// Goroutines: three per stream, which end with it; one more for extensions, and one more while something is warming.
package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // which registers the codec whose name the relay uses
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/run"
)

// Options are the parameters of a relay.
type Options struct {
	Dialer *upstream.Dialer
	// Store keeps the last known good configuration.
	Store *lastgood.Store
	// Modules fetches the modules of Wasm filters.
	Modules Modules
	// Trust takes the roots of trust bundles, as PEM, and says why one cannot be used; nil if the control plane is not asked for them.
	Trust func(texts []string) error
	// Warming asks Envoy which resources it has received and does not use yet; nil if there is no Envoy to ask.
	Warming func(ctx context.Context, clusters bool) (envoy.Warming, error)
	// Draining asks Envoy for connections that still use former versions of listeners; nil if there is no Envoy to ask.
	Draining func(ctx context.Context) (envoy.Draining, error)
	Log      *slog.Logger
}

// Relay passes streams on.
type Relay struct {
	dialer  *upstream.Dialer
	store   *lastgood.Store
	modules Modules
	trust   func([]string) error
	warming func(ctx context.Context, clusters bool) (envoy.Warming, error)
	drains  func(ctx context.Context) (envoy.Draining, error)
	log     *slog.Logger
	// fetchPause is the shortest pause before modules that could not be fetched are requested again.
	fetchPause time.Duration
	// retries decides when refused resources are sent to Envoy again.
	retries retries
	// backoff decides when to try to reach the control plane again.
	backoff backoff
	// trying is held while a stream that is served from the last known good configuration tries to reach the control plane.
	trying sync.Mutex
	// lost is when the control plane became unreachable; nil while it can be reached.
	lost atomic.Pointer[time.Time]
	// spare is a connection that was established while the last known good configuration was served, for the next stream; nil if there is
	// none. Making another one could take longer than connecting.
	spare atomic.Pointer[upstream.Connection]
	// health is the health of the workload that the streams report.
	health announcement
}

// New returns a relay.
func New(o Options) *Relay {
	return &Relay{dialer: o.Dialer, store: o.Store, modules: o.Modules, trust: o.Trust, warming: o.Warming, drains: o.Draining, log: o.Log, fetchPause: firstFetch}
}

// Stale reports whether the control plane cannot be reached, and since when.
func (r *Relay) Stale() (since time.Time, stale bool) {
	if t := r.lost.Load(); t != nil {
		return *t, true
	}
	return time.Time{}, false
}

// Kept describes the last known good configuration.
func (r *Relay) Kept() lastgood.State { return r.store.State() }

const (
	// connecting is how long a connection may take before the last known good configuration is served. Until then Envoy may have nothing.
	connecting = time.Second
	// The shortest and longest pause between attempts to reach the control plane while the last known good configuration is served, and how
	// long one attempt may take.
	firstRetry, lastRetry = 200 * time.Millisecond, 15 * time.Second
	attempt               = 5 * time.Second
	// lastDropped is the longest pause after a stream that the control plane has ended at once. A control plane that starts refuses streams
	// until it has read its configuration, which takes no longer than that as a rule.
	lastDropped = 3 * time.Second
)

// lasting is how long a stream must last to count as accepted although nothing was received.
const lasting = time.Second

// aloneHeader is the metadata of a stream with the time for which the agent could not reach any control plane.
const aloneHeader = "pilot-alone-for"

// window is how many bytes Envoy may send before they are read.
const window = 256 << 10

const service = "envoy.service.discovery.v3.AggregatedDiscoveryService"

// Server returns a gRPC server for Envoy's streams.
func (r *Relay) Server() *grpc.Server {
	// The windows are fixed, because gRPC would otherwise ask Envoy for an echo after each request.
	g := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window), run.AllowPings())
	desc := grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Metadata: "envoy/service/discovery/v3/ads.proto"}
	for _, name := range []string{"StreamAggregatedResources", deltaMethod} {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: name, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, down grpc.ServerStream) error { return r.pass(name, down) },
		})
	}
	g.RegisterService(&desc, r)
	return g
}

// link is a stream to the control plane.
type link struct {
	grpc.ClientStream
	conn          *upstream.Connection
	cancel, close func()
}

// open opens a stream to the control plane.
func (r *Relay) open(ctx context.Context, method string) (*link, error) {
	conn := r.spare.Swap(nil)
	if conn == nil {
		var err error
		if conn, err = r.dialer.Dial(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	if since, stale := r.Stale(); stale {
		// Whole milliseconds: the text of shorter times has a µ, and metadata is ASCII.
		ctx = metadata.AppendToOutgoingContext(ctx, aloneHeader, time.Since(since).Truncate(time.Millisecond).String())
	}
	patience := connecting
	if !r.complete() {
		patience = attempt // there is nothing else
	}
	late := time.AfterFunc(patience, cancel)
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+service+"/"+method,
		grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if !late.Stop() && err != nil {
		err = status.Errorf(codes.Unavailable, "it has not answered for %v", patience)
	}
	l := &link{ClientStream: up, conn: conn, cancel: cancel, close: func() {
		cancel()
		_ = conn.Close() // nothing is buffered
	}}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// pass passes one stream on until one side ends it.
func (r *Relay) pass(method string, down grpc.ServerStream) error {
	s := r.newSession(method, down)
	defer s.stop()
	if r.complete() && r.backoff.left() > 0 {
		_ = r.unreachable(status.Error(codes.Unavailable, "it has ended the last stream at once"))
		return r.serveLastGood(s)
	}
	up, err := r.open(down.Context(), method)
	if err != nil {
		r.backoff.failed(lastRetry)
		err = r.unreachable(err)
		if !r.complete() || down.Context().Err() != nil {
			return err
		}
		return r.serveLastGood(s)
	}
	defer up.close()
	s.up = up
	began := time.Now()
	// A client that reconnects and has everything receives nothing, so a stream that lasts counts as one that was answered.
	var once sync.Once
	reached := func() { once.Do(func() { r.reached(up.conn) }) }
	lasts := time.AfterFunc(lasting, func() { r.backoff.lasted(); reached() })
	defer lasts.Stop()
	go s.readEnvoy() // it ends when this function has returned, because receiving from Envoy then fails
	go s.tellHealth(down.Context(), &r.health)
	answered := false
	for {
		var f frame
		if err = up.RecvMsg(&f); err != nil {
			break
		}
		answered = true
		reached()
		if err = s.fromControlPlane(&f); err != nil {
			break
		}
	}
	if down.Context().Err() != nil {
		return nil // Envoy has ended the stream
	}
	if why := s.ends.Load(); why != nil {
		return status.Error(codes.Unavailable, (*why).Error())
	}
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the control plane has ended the stream")
	}
	if time.Since(began) < lasting {
		r.backoff.failed(lastDropped)
		if !answered {
			return r.unreachable(err)
		}
	}
	r.log.Info("the stream from the control plane has ended", "after", time.Since(began).Round(time.Millisecond).String(), "reason", status.Convert(err).Message())
	return err
}

// serveLastGood serves the last known good configuration until the control plane can be reached, or Envoy ends the stream.
func (r *Relay) serveLastGood(s *session) error {
	ctx := s.down.Context()
	go s.readEnvoy()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case <-time.After(r.backoff.left()):
		}
		if r.tryAgain(ctx) {
			return status.Error(codes.Unavailable, "the control plane can be reached again: open another stream")
		}
		if err := s.offers(); err != nil {
			return err
		}
	}
}

// tryAgain reports whether the control plane can be reached. Several streams of Envoy try no more often than one.
func (r *Relay) tryAgain(ctx context.Context) bool {
	r.trying.Lock()
	defer r.trying.Unlock()
	if r.backoff.left() > 0 {
		return false // another stream has just tried
	}
	if r.reachable(ctx) {
		return true
	}
	r.backoff.failed(lastRetry)
	return false
}

// reachable reports whether a connection to the control plane can be established, and keeps it for the next stream.
func (r *Relay) reachable(ctx context.Context) bool {
	conn, err := r.dialer.Dial()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	ready := connected(ctx, conn)
	if ready {
		conn = r.spare.Swap(conn)
	} else {
		conn.Failed()
	}
	if conn != nil {
		_ = conn.Close() // nothing is buffered
	}
	return ready
}

// connected waits until a connection is established or has failed.
func connected(ctx context.Context, conn *upstream.Connection) bool {
	conn.Connect()
	for {
		switch state := conn.GetState(); {
		case state == connectivity.Ready:
			return true
		case state == connectivity.TransientFailure || !conn.WaitForStateChange(ctx, state):
			return false
		}
	}
}

// reached notes that the control plane answers.
func (r *Relay) reached(c *upstream.Connection) {
	attributes := []any{"address", r.dialer.Address, "shows", c.Shows}
	if since := r.lost.Swap(nil); since != nil {
		attributes = append(attributes, "unreachable_for", time.Since(*since).Round(time.Millisecond).String())
	}
	r.log.Info("connected to the control plane", attributes...)
}

// unreachable notes that the control plane does not answer, and logs it once.
func (r *Relay) unreachable(err error) error {
	if _, ok := status.FromError(err); !ok {
		err = status.Error(codes.Unavailable, err.Error())
	}
	now := time.Now()
	if r.lost.CompareAndSwap(nil, &now) {
		r.log.Warn("the control plane cannot be reached; Envoy keeps the last known good configuration, and the agent tries again",
			"address", r.dialer.Address, "kept_resources", r.store.State().Resources, "complete", r.complete(), "error", status.Convert(err).Message())
	}
	return err
}

// frame is a message that is not read.
type frame struct{ data mem.BufferSlice }

// raw is a codec that leaves messages as they are. It has the name of the protobuf codec, which is in the content type.
type raw struct{}

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return encoding.GetCodecV2("proto").Marshal(v)
	}
	return f.data, nil
}

// Unmarshal implements encoding.CodecV2. The sender of the message releases it.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return encoding.GetCodecV2("proto").Unmarshal(data, v)
	}
	data.Ref()
	f.data = data
	return nil
}

// Name implements encoding.CodecV2.
func (raw) Name() string { return "proto" }
