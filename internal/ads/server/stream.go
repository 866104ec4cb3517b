package server

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// directMessage is the size in bytes up to which workers write messages themselves, and directBytes the sum of such
	// messages. gRPC accepts 64 KiB per stream without waiting for the client. Above directBytes the stream sends a message
	// that notifies it when gRPC has written this and all earlier ones, because a client may send requests and never read.
	directMessage = 8 << 10
	directBytes   = 32 << 10
)

// lingerTime is how long a reconnecting client has to send its first requests, which follow one another closely.
const lingerTime = 100 * time.Millisecond

// Stream is one ADS stream.
type Stream struct {
	server  *Server
	grpc    grpc.ServerStream
	id      uint64
	variant protocol.Variant
	// first is the first request, while the mesh admits the client.
	first  *protocol.Request
	opened time.Time
	conn   *connection
	caller identity.Caller
	// client is the client that the bounds of the server are about.
	client string
	held   *holder
	// alone is for how long the client's agent had no control plane before the stream; 0 if it had one, or does not say.
	alone time.Duration

	// latest is the newest published state; nil before the first.
	latest atomic.Pointer[resource.State]
	// requests has at most one request, which a worker has yet to process.
	requests chan queuedRequest
	// answers of the mesh that a worker has yet to process.
	answers answers
	// waited is set when the time of the core's Wait action has passed.
	waited atomic.Bool
	// sent is set when the message of writeAndQueue was passed to gRPC, until a worker reports that to the core.
	sent atomic.Bool
	// queued is set while the stream is in a ring or a goroutine processes it.
	queued atomic.Bool
	// pages is set if the stream serves debug pages or configuration, not a proxy.
	pages atomic.Bool
	// reading is set if the client reads configuration. Only the handler goroutine uses it.
	reading *reading
	// pagesSent is the number of pages sent. Only the handler goroutine uses it.
	pagesSent uint64

	// lastLargeSend is when the last big message was sent, or the first message of any size, in Unix nanoseconds; 0 before that.
	lastLargeSend atomic.Int64
	// unwritten is the number of messages that gRPC has accepted and not written to the connection. It does not count messages
	// that workers wrote directly.
	unwritten atomic.Int32
	// lastProgress is when gRPC last accepted or finished such a message, in Unix nanoseconds.
	lastProgress atomic.Int64
	// direct is the sum of the messages that workers wrote since gRPC was last known to have written everything, in bytes.
	direct atomic.Int32

	// abort cancels the context of the stream, which ends all waiting for gRPC and for workers.
	abort context.CancelFunc
	once  sync.Once
	ended atomic.Bool
	// cause is why the stream ended. It may be read after ended is set.
	cause error

	mu   sync.Mutex
	core *protocol.Core
	node string
	// attach is nil before Mesh.Connect has returned and after the end of the stream.
	attach Attachment

	// unacknowledged is the last report to the mesh. It belongs to the sweeper.
	unacknowledged []protocol.Unacknowledged
}

// Update gives the stream a new state of its class. It never blocks and is cheap. If updates follow one another quickly, the
// stream processes only the last one.
func (s *Stream) Update(state *resource.State) {
	s.latest.Store(state)
	s.queue()
}

// Answer gives the stream the answers to names that its client asked for. It never blocks. If answers to a name follow one another
// quickly, the stream processes only the last one.
func (s *Stream) Answer(list []protocol.Answer) {
	s.answers.add(list)
	s.queue()
}

// queue puts the stream into a ring, unless it is in one already, so that a worker processes it.
func (s *Stream) queue() {
	if s.queued.Swap(true) {
		return
	}
	if s.settled() {
		s.server.quick.put(s)
	} else {
		s.server.slow.put(s)
	}
}

// settled reports whether the stream has had its first responses for settleTime, and no big message since.
func (s *Stream) settled() bool {
	last := s.lastLargeSend.Load()
	return last != 0 && time.Now().UnixNano()-last > int64(settleTime)
}

// Status describes the stream.
func (s *Stream) Status() Status {
	st := Status{ID: s.id, Variant: s.variant, Connected: s.opened, Alone: s.alone, Peer: s.Peer()}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Node, st.Types, st.Wants, st.Split = s.node, s.core.Status(), s.core.Wants(), s.core.Split()
	if s.attach != nil {
		st.Attachment = s.attach.ID()
	}
	return st
}

// end ends the stream. Only the first call has an effect. A nil cause means that the client closed the stream.
func (s *Stream) end(cause error) {
	s.once.Do(func() {
		s.cause = cause
		s.ended.Store(true)
		s.abort()
	})
}

// expire ends the stream, because what its client has shown is no longer valid. The connection ends with its last stream, because it
// goes with the client's certificate.
func (s *Stream) expire() {
	s.conn.abandon()
	s.end(status.Errorf(codes.Unauthenticated, "the %s of the client has expired; connect again with a new one", s.caller.Means))
}

// guard must be deferred by each goroutine of the stream. It turns a panic into the end of this stream.
func (s *Stream) guard() {
	v := recover()
	if v == nil {
		return
	}
	s.server.options.Observer.Panicked()
	s.server.options.Log.Error("stream ended by a panic", "stream", s.id, "panic", v, "stack", string(debug.Stack()))
	s.end(status.Error(codes.Internal, "internal error, see the control plane's log"))
}

// receive reads requests until the stream ends. It runs on the handler goroutine.
func (s *Stream) receive() {
	defer func() {
		if s.reading != nil {
			s.abort()
			s.reading.stop()
		}
	}()
	defer s.guard()
	a := s.arrive()
	if a == nil {
		s.end(status.FromContextError(s.grpc.Context().Err()).Err())
		return
	}
	defer a.end()
	for first := a; ; first = nil {
		err := s.receiveOne(first)
		switch {
		case s.ended.Load(): // Another receive would report the cancellation to the client instead of its cause.
			return
		case errors.Is(err, io.EOF):
			s.end(nil) // The client closed its side.
			return
		case err != nil:
			s.end(err)
			return
		}
	}
}

// receiveOne receives one request and passes it on. For the first request, a is the arrival of the stream; it is nil for the others. It is a separate
// function so that the request is not kept in memory while the handler waits for the next one.
func (s *Stream) receiveOne(a *arrival) error {
	first := a != nil
	var in received
	if err := s.grpc.RecvMsg(&in); err != nil {
		return err
	}
	if first && !a.received(len(in.data)) {
		return status.FromContextError(s.grpc.Context().Err()).Err()
	}
	q, err := request.Scan(s.variant, in.data)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%v", err)
	}
	if first {
		if node := s.readsConfiguration(q); node != nil {
			if err := s.read(node); err != nil {
				return err
			}
		}
	}
	if s.reading != nil {
		return s.ask(q)
	}
	if s.asksForPage(q, first) {
		return s.answerPage(q)
	}
	if s.pages.Load() {
		return status.Errorf(codes.InvalidArgument, "this stream is for debug pages, which its first request asked for; open another one for %q", clip(q.URL))
	}
	answers := !first && q.Answers()
	if answers && s.settled() && s.queued.CompareAndSwap(false, true) {
		s.process(q) // This is most likely an ACK, which is cheaper to process here than to pass to a worker.
		return nil
	}
	// A worker processes the request. The stack that this needs then exists once per worker, and not for ever per stream.
	r := queuedRequest{request: q}
	if !answers {
		r.done = make(chan struct{})
	}
	select {
	case s.requests <- r:
		s.queue()
	case <-s.grpc.Context().Done():
		return nil
	}
	if r.done == nil {
		return nil
	}
	select {
	case <-r.done:
	case <-s.grpc.Context().Done():
	}
	return nil
}

// queuedRequest is a request that a worker has yet to process.
type queuedRequest struct {
	request *protocol.Request
	// done is closed when the request was processed; nil if no goroutine waits for it. The handler waits after a request that the
	// core may refuse: gRPC reports the cause to the client only if the handler is not receiving.
	done chan struct{}
}

// process passes everything that has arrived to the core: requests, first the queued one and then q, answers and the newest state.
// The caller must have set queued, which process clears at the end, so that only one goroutine at a time runs it.
func (s *Stream) process(q *protocol.Request) {
	defer s.guard()
	select {
	case r := <-s.requests:
		s.step(protocol.Event{Request: r.request})
		if r.done != nil {
			close(r.done)
		}
	default:
	}
	if q != nil {
		s.step(protocol.Event{Request: q})
	}
	if s.sent.Swap(false) {
		s.step(protocol.Event{Sent: true})
	}
	if s.waited.Swap(false) {
		s.step(protocol.Event{Waited: true})
	}
	if list := s.answers.take(); list != nil {
		s.step(protocol.Event{Answers: list})
	}
	state := s.latest.Load()
	if state != nil {
		s.step(protocol.Event{State: state})
	}
	s.queued.Store(false)
	// Events that arrived during process did not queue the stream, because queued was still set.
	if len(s.requests) > 0 || s.sent.Load() || s.waited.Load() || !s.answers.empty() || s.latest.Load() != state {
		s.queue()
	}
}

// step passes one event to the core and carries out its actions. It writes small messages itself and starts a goroutine for a
// message that may have to wait for the client. The core has one message to write at a time, so there is at most one such
// goroutine per stream.
func (s *Stream) step(e protocol.Event) {
	for again := true; again; {
		again = false
		var buf [4]protocol.Action
		for _, a := range s.stepCore(e, buf[:0]) {
			switch {
			case a.Kind == protocol.Connect:
				s.connect(e.Request)
			case a.Kind != protocol.Send:
				s.perform(a)
			case s.writesDirectly(a.Message):
				s.direct.Add(int32(a.Message.Size))
				if err := s.write(a, nil); err != nil {
					s.end(err)
					return
				}
				e, again = protocol.Event{Sent: true}, true
			default:
				go s.writeAndQueue(a)
			}
		}
	}
}

// writesDirectly reports whether a worker may write a message, because gRPC has room for it even if the client does not read.
func (s *Stream) writesDirectly(m *response.Message) bool {
	return s.unwritten.Load() == 0 && m.Size <= directMessage && int(s.direct.Load())+m.Size <= directBytes
}

// stepCore passes one event to the core, unless the stream has ended.
func (s *Stream) stepCore(e protocol.Event, out []protocol.Action) []protocol.Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Load() {
		return out
	}
	e.At = time.Now()
	out = s.core.Step(e, out)
	if err := s.server.clients.subscribe(s.held, s.core, s.server.options.MaxNameBytesOf); err != nil {
		s.end(err)
		return nil
	}
	return out
}

// writeAndQueue writes a message that may have to wait for the client, and then lets a worker report that to the core. The next
// message to a new client takes long to compute, and the few workers of unsettled streams leave processor time to the settled ones.
func (s *Stream) writeAndQueue(a protocol.Action) {
	defer s.guard()
	if err := s.write(a, s.written); err != nil {
		s.end(err)
		return
	}
	s.sent.Store(true)
	s.queue()
}

// written is called when gRPC has written, or dropped, a message of writeAndQueue. Everything that workers wrote directly was sent
// before it.
func (s *Stream) written() {
	s.direct.Store(0)
	s.lastProgress.Store(time.Now().UnixNano())
	s.unwritten.Add(-1)
}

// write passes a message to gRPC. If written is not nil, it is called when gRPC has finished with the message.
func (s *Stream) write(a protocol.Action, written func()) error {
	ctx := s.grpc.Context()
	if a.Message.Big() {
		p := s.server.gate.Enter(ctx, s.client)
		if p == nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		defer s.server.gate.Leave(p)
	}
	parts := make(mem.BufferSlice, 0, len(a.Message.Buffers)+1)
	parts = append(parts, a.Message.Buffers...)
	nonce := response.NonceField(a.Nonce)
	began := time.Now()
	if a.Message.Big() || s.lastLargeSend.Load() == 0 {
		s.lastLargeSend.Store(began.UnixNano())
	}
	if written == nil {
		parts = append(parts, mem.SliceBuffer(nonce))
	} else {
		s.lastProgress.Store(began.UnixNano())
		s.unwritten.Add(1)
		parts = append(parts, notifyingBuffer(nonce, written))
	}
	err := s.grpc.SendMsg(&encoded{parts})
	if err == nil {
		s.server.options.Observer.Sent(a.Type, a.Message, time.Since(began))
	}
	return err
}

// stuck reports whether a message has waited for the client to read for longer than limit.
func (s *Stream) stuck(now time.Time, limit time.Duration) bool {
	return s.unwritten.Load() > 0 && now.UnixNano()-s.lastProgress.Load() > int64(limit)
}

// wake ends the core's Wait. If gRPC has not written all messages yet, the client cannot have answered them, so the stream waits
// once more.
func (s *Stream) wake() {
	switch {
	case s.ended.Load():
	case s.unwritten.Load() > 0:
		time.AfterFunc(protocol.Patience, s.wake)
	default:
		s.waited.Store(true)
		s.queue()
	}
}

// reportUnacknowledged informs the mesh of what the client has not acknowledged since before a time, if that differs from the last
// report.
func (s *Stream) reportUnacknowledged(before time.Time) {
	if !s.mu.TryLock() {
		return // The core is busy. The next sweep tries again.
	}
	now, attach := s.core.Unacknowledged(before), s.attach
	s.mu.Unlock()
	if attach == nil || slices.EqualFunc(now, s.unacknowledged, func(a, b protocol.Unacknowledged) bool { return a.Type == b.Type && slices.Equal(a.Names, b.Names) }) {
		return
	}
	s.unacknowledged = now
	attach.NoteUnacknowledged(now)
}

// attached returns the node id and the attachment, which may be nil.
func (s *Stream) attached() (node string, a Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.attach
}

// connect attaches the stream to the mesh.
func (s *Stream) connect(first *protocol.Request) {
	s.first = first
	defer func() { s.first = nil }()
	node, err := request.DecodeNode(first.Node)
	if err != nil {
		s.end(status.Errorf(codes.InvalidArgument, "%v", err))
		return
	}
	s.mu.Lock()
	s.node = node.GetId()
	s.mu.Unlock()
	attach, err := s.server.mesh.Connect(s.grpc.Context(), node, s)
	if err != nil {
		if _, ok := status.FromError(err); !ok {
			err = status.Errorf(codes.InvalidArgument, "%v", err)
		}
		s.end(err)
		return
	}
	s.mu.Lock()
	s.attach = attach
	s.mu.Unlock()
	if s.ended.Load() {
		s.detach() // The stream ended during Connect.
	}
}

// detach closes the attachment, once.
func (s *Stream) detach() {
	s.mu.Lock()
	attach := s.attach
	s.attach = nil
	s.mu.Unlock()
	if attach != nil {
		attach.Close()
	}
}
