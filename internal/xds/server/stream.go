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
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// lightMessage is up to where workers write themselves, and lightMessages for how much of it: gRPC takes 64 KiB of each
	// stream without asking the client. After that a message is sent that tells when gRPC has written it, and with it all that
	// was before: a client may ask again and again and never read.
	lightMessage  = 8 << 10
	lightMessages = 32 << 10
)

// lingerTime is how long a client that came back is given to say all it has: its requests follow one another closely.
const lingerTime = 100 * time.Millisecond

// Stream is one ADS stream.
type Stream struct {
	server  *Server
	grpc    grpc.ServerStream
	id      uint64
	variant protocol.Variant
	opened  time.Time

	latest atomic.Pointer[resource.State] // published, the newest
	asked  chan asked                     // received, and not taken in yet: one at most
	queued atomic.Bool                    // waits in a ring, or is being looked at
	heavy  atomic.Int64                   // when it was sent a big message, last, or anything at all, first; 0: not yet
	conn   *connection
	unsent atomic.Int32 // messages, but those that workers wrote, that gRPC has not written to the connection
	moved  atomic.Int64 // when the last of them began or ended
	waited atomic.Bool  // the time of the core's Wait has passed
	light  atomic.Int32 // bytes that workers wrote since gRPC was last known to have written all of them

	abort context.CancelFunc // ends what waits in gRPC, and for a worker
	once  sync.Once
	ended atomic.Bool
	cause error // of the end; read after ended

	mu     sync.Mutex
	core   *protocol.Core
	node   string
	attach Attachment // nil before Connect has returned, and after the end

	answers answers // of the mesh, not taken in yet

	withheld []protocol.Withheld // what the mesh was told of; of the sweeper only
}

// Update gives the stream a new state of its class. It never blocks and costs next to nothing; of several updates in
// a row the stream sees the last one.
func (s *Stream) Update(state *resource.State) {
	s.latest.Store(state)
	s.queue()
}

// Answer gives the stream what the mesh has for names that its client asked for. It never blocks; of several answers to a name
// the stream sees the last one.
func (s *Stream) Answer(list []protocol.Answer) {
	s.answers.add(list)
	s.queue()
}

// queue lets a worker look at the stream soon.
func (s *Stream) queue() {
	if s.queued.Swap(true) {
		return
	}
	if s.calm() {
		s.server.quick.put(s)
	} else {
		s.server.slow.put(s)
	}
}

// calm reports whether the stream has its first answers, and was sent nothing big, for a while.
func (s *Stream) calm() bool {
	heavy := s.heavy.Load()
	return heavy != 0 && time.Now().UnixNano()-heavy > int64(unsettled)
}

// Settled is the revision up to which the client has acknowledged everything it asked for; ok is false if there is none.
func (s *Stream) Settled() (store.Revision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Settled()
}

// Status describes the stream.
func (s *Stream) Status() Status {
	st := Status{ID: s.id, Variant: s.variant, Connected: s.opened}
	if p, ok := peer.FromContext(s.grpc.Context()); ok {
		st.Peer = p.Addr.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Node, st.Types, st.Wants = s.node, s.core.Status(), s.core.Wants()
	if s.attach != nil {
		st.Attachment = s.attach.ID()
	}
	return st
}

// end ends the stream; the first cause counts. A nil cause is an orderly end.
func (s *Stream) end(cause error) {
	s.once.Do(func() {
		s.cause = cause
		s.ended.Store(true)
		s.abort()
	})
}

// guard turns a panic in a goroutine of the stream into the end of this stream.
func (s *Stream) guard() {
	v := recover()
	if v == nil {
		return
	}
	s.server.options.Observer.Panicked()
	s.server.options.Log.Error("stream ended by a panic", "stream", s.id, "panic", v, "stack", string(debug.Stack()))
	s.end(status.Error(codes.Internal, "internal error, see the control plane's log"))
}

// receive reads requests until the stream ends. It is what the handler goroutine does.
func (s *Stream) receive() {
	defer s.guard()
	for first := true; ; first = false {
		err := s.receiveOne(first)
		switch {
		case s.ended.Load(): // receiving once more would tell the client of the abort, not of its cause
			return
		case errors.Is(err, io.EOF):
			s.end(nil) // the client has said all it wanted to
			return
		case err != nil:
			s.end(err)
			return
		}
	}
}

// receiveOne is a function of its own so that nothing of a request is alive while the next one is waited for.
func (s *Stream) receiveOne(first bool) error {
	var in received
	if err := s.grpc.RecvMsg(&in); err != nil {
		return err
	}
	q, err := request.Scan(s.variant, in.data)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%v", err)
	}
	answers := !first && q.Answers()
	if answers && s.calm() && s.queued.CompareAndSwap(false, true) {
		s.refresh(q) // it says that all is well, most likely: not worth waking a worker
		return nil
	}
	// A worker takes it in: what that needs of stack is then held once per worker and not, for ever, by each stream.
	a := asked{request: q}
	if !answers {
		a.taken = make(chan struct{})
	}
	select {
	case s.asked <- a:
		s.queue()
	case <-s.grpc.Context().Done():
		return nil
	}
	if a.taken == nil {
		return nil
	}
	select {
	case <-a.taken:
	case <-s.grpc.Context().Done():
	}
	return nil
}

// asked is a request on its way to a worker.
type asked struct {
	request *protocol.Request
	// taken is closed when the request was taken in; nil if nobody waits for that. What may be refused is waited for: gRPC
	// tells the client why its stream ends only if that does not receive.
	taken chan struct{}
}

// refresh takes in what has come: requests, q after one that waits, and the newest state. Whoever calls it has made the stream
// queued, which it is until it returns: so there is one at a time.
func (s *Stream) refresh(q *protocol.Request) {
	defer s.guard()
	select {
	case a := <-s.asked:
		s.step(protocol.Event{Request: a.request})
		if a.taken != nil {
			close(a.taken)
		}
	default:
	}
	if q != nil {
		s.step(protocol.Event{Request: q})
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
	if len(s.asked) > 0 || s.waited.Load() || !s.answers.empty() || s.latest.Load() != state { // it came meanwhile, and found the stream queued
		s.queue()
	}
}

// step lets the core take one event and does what it says. What it writes itself takes no time; for the rest there is a
// goroutine. The core has one message out at a time, so that is one per stream, and none most of the time.
func (s *Stream) step(e protocol.Event) {
	for again := true; again; {
		again = false
		var buf [4]protocol.Action
		for _, a := range s.ask(e, buf[:0]) {
			switch {
			case a.Kind != protocol.Send:
				s.perform(a)
			case s.takes(a.Message):
				s.light.Add(int32(a.Message.Size))
				if err := s.write(a, nil); err != nil {
					s.end(err)
					return
				}
				e, again = protocol.Event{Sent: true}, true
			default:
				go s.flush(a)
			}
		}
	}
}

// takes reports whether a worker may write a message: gRPC surely has room for it, whether or not the client reads.
func (s *Stream) takes(m *protocol.Message) bool {
	return s.unsent.Load() == 0 && m.Size <= lightMessage && int(s.light.Load())+m.Size <= lightMessages
}

func (s *Stream) ask(e protocol.Event, out []protocol.Action) []protocol.Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Load() {
		return out
	}
	e.At = time.Now()
	return s.core.Step(e, out)
}

// flush writes a message that may have to wait for the client, and goes on.
func (s *Stream) flush(a protocol.Action) {
	defer s.guard()
	if err := s.write(a, s.written); err != nil {
		s.end(err)
		return
	}
	s.step(protocol.Event{Sent: true})
}

// written is called when gRPC has written, or dropped, a message that may have had to wait. What workers wrote came before it.
func (s *Stream) written() {
	s.light.Store(0)
	s.moved.Store(time.Now().UnixNano())
	s.unsent.Add(-1)
}

// write hands a message to gRPC. written, if there is one, is called when that has let go of it.
func (s *Stream) write(a protocol.Action, written func()) error {
	ctx := s.grpc.Context()
	if a.Message.Big() {
		p := s.server.gate.Enter(ctx)
		if p == nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		defer s.server.gate.Leave(p)
	}
	parts := make(mem.BufferSlice, 0, len(a.Message.Buffers)+1)
	parts = append(parts, a.Message.Buffers...)
	nonce := protocol.NonceField(a.Nonce)
	began := time.Now()
	if a.Message.Big() || s.heavy.Load() == 0 {
		s.heavy.Store(began.UnixNano())
	}
	if written == nil {
		parts = append(parts, mem.SliceBuffer(nonce))
	} else {
		s.moved.Store(began.UnixNano())
		s.unsent.Add(1)
		parts = append(parts, notice(nonce, written))
	}
	err := s.grpc.SendMsg(&response{parts})
	if err == nil {
		s.server.options.Observer.Sent(a.Type, a.Message, time.Since(began))
	}
	return err
}

// stuck reports whether what was sent has been waiting for the client to read since before the limit.
func (s *Stream) stuck(now time.Time, limit time.Duration) bool {
	return s.unsent.Load() > 0 && now.UnixNano()-s.moved.Load() > int64(limit)
}

// code is the gRPC status code of a refusal.
func code(r protocol.Refusal) codes.Code {
	if r == protocol.TooMuch {
		return codes.ResourceExhausted
	}
	return codes.InvalidArgument
}

// perform carries out everything but sending.
func (s *Stream) perform(a protocol.Action) {
	o := s.server.options.Observer
	switch a.Kind {
	case protocol.Send:
	case protocol.Connect:
		s.connect(a.Node)
	case protocol.Close:
		s.end(status.Error(code(a.Refusal), a.Text))
	case protocol.Acked:
		var took time.Duration
		if p := a.State.Published; !p.IsZero() {
			took = time.Since(p)
		}
		o.Acked(a.Type, a.State, took)
	case protocol.Rejected:
		node, attach := s.attached()
		s.server.options.Log.Warn("response rejected", "stream", s.id, "node", node, "type", a.Type, "names", a.Names, "reason", a.Text)
		o.Rejected(a.Type, node, a.Text)
		if attach != nil && a.Type.PerProxy() {
			attach.Refuse(a.Type, a.Names, a.Text)
		}
	case protocol.Cleared:
		if _, attach := s.attached(); attach != nil {
			attach.Refuse(a.Type, a.Names, "")
		}
	case protocol.Pinned:
		if _, attach := s.attached(); attach != nil {
			attach.Pin(a.Pins, a.Text)
		}
	case protocol.Want:
		if _, attach := s.attached(); attach != nil {
			attach.Want(a.Type, a.Names, a.Dropped)
		}
	case protocol.Expired:
		o.Expired(a.Type)
	case protocol.Unknown:
		o.Unknown(a.Text)
	case protocol.Linger:
		time.AfterFunc(lingerTime, func() {
			defer s.guard()
			s.step(protocol.Event{Lingered: true})
		})
	case protocol.Wait:
		time.AfterFunc(a.For, s.wake)
	}
}

// wake lets a worker tell the core that it has waited. What gRPC has not written yet the client cannot have answered: it is
// waited for anew.
func (s *Stream) wake() {
	switch {
	case s.ended.Load():
	case s.unsent.Load() > 0:
		time.AfterFunc(protocol.Patience, s.wake)
	default:
		s.waited.Store(true)
		s.queue()
	}
}

// report tells the mesh of what the client has not acknowledged since before a time, if that is not what the mesh knows.
func (s *Stream) report(before time.Time) {
	if !s.mu.TryLock() {
		return // it is at work; next time
	}
	now, attach := s.core.Withheld(before), s.attach
	s.mu.Unlock()
	if attach == nil || slices.EqualFunc(now, s.withheld, func(a, b protocol.Withheld) bool { return a.Type == b.Type && slices.Equal(a.Names, b.Names) }) {
		return
	}
	s.withheld = now
	attach.Withhold(now)
}

func (s *Stream) attached() (node string, a Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.attach
}

// connect hands the stream to the mesh.
func (s *Stream) connect(raw []byte) {
	node, err := request.DecodeNode(raw)
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
		s.detach() // it ended while it was being connected
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
