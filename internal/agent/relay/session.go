package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/agent/extension"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
)

// localNonce begins the nonces of responses that the relay makes itself.
const localNonce = "last-known-good/"

// kept reports whether a type is kept.
func kept(typeURL string) bool {
	switch typeURL {
	case clusterURL, assignmentURL, listenerURL, routeURL, hostURL, extension.URL:
		return true
	}
	return false
}

// readable reads a message. The relay passes an unreadable one on, and its receiver judges it.
func readable(data []byte, m proto.Message) bool { return proto.Unmarshal(data, m) == nil }

// session is one stream of Envoy.
type session struct {
	down  grpc.ServerStream
	store *lastgood.Store
	log   *slog.Logger
	// up is nil if the control plane cannot be reached. sending guards sending on it.
	up      *link
	sending sync.Mutex
	applied applied
	covered *coverage
	// retries decides when refused resources are sent to Envoy again, and ends is why the relay ends the stream itself; nil if it does not.
	retries *retries
	ends    atomic.Pointer[error]
	// failed receives the error for which the stream ends while there is no control plane.
	failed  chan error
	dialect dialect
	// extensions rewrites the messages about extensions.
	extensions *extensions
	// begun is closed, and passed set, when Envoy's first request has been passed on, which identifies the proxy. Only the goroutine that
	// reads from Envoy uses passed.
	begun  chan struct{}
	passed bool
	// answers counts the responses that the relay has made.
	answers atomic.Int64

	// trust accepts the roots of trust bundles; nil if the control plane is not asked for them. trusted is the version that was accepted
	// last. Only the goroutine that reads from the control plane uses it.
	trust   func([]string) error
	trusted string

	// mu guards sending to Envoy, and the responses that Envoy has not answered yet, by type and in the order in which they were sent. It also
	// guards retry, which ends the stream later; nil if nothing was refused.
	mu      sync.Mutex
	pending map[string][]response
	retry   *time.Timer
}

// response is a response of a type that is kept.
type response struct {
	typeURL, nonce string
	// names are the resources that it is about, and more is set if further parts of its type follow.
	names []string
	more  bool
	// split are the route configurations in the split form among them.
	split []string
	// accept stores it when Envoy has acknowledged it.
	accept func()
}

// dialect has the differences between delta xDS and State-of-the-World xDS.
type dialect interface {
	// request handles a request of Envoy, and returns the request to pass on; nil for none.
	request(s *session, f *frame) (*frame, error)
	// response reads a response of the control plane; false if the type is not kept.
	response(s *session, data []byte) (response, bool)
	// offer sends refused resources of the last known good configuration to Envoy again.
	offer(s *session) error
	// update reads a response that the relay may change; nil if it cannot be read. message writes one about extensions.
	update(data []byte) *update
	message(u *update) proto.Message
	// own writes a request of the relay itself.
	own(q question) proto.Message
}

// question is a request of the relay itself.
type question struct {
	typeURL string
	names   []string
	// nonce is the nonce of the answered response; empty for none. version is the version of the last good response.
	nonce, version string
	// failure is the error of a NACK or a report; nil for none.
	failure *rpcstatus.Status
}

func (r *Relay) newSession(method string, down grpc.ServerStream) *session {
	s := &session{down: down, store: r.store, log: r.log, trust: r.trust, failed: make(chan error, 1), begun: make(chan struct{}), pending: map[string][]response{}}
	s.applied.ask, s.applied.report = r.warming, func(names []string) error { return s.sendOwn(question{typeURL: appliedURL, names: names}) }
	s.applied.waits, s.applied.drains = s.waits, r.drains
	s.covered, s.retries = newCoverage(r.store), &r.retries
	s.extensions = newExtensions(s, r)
	if method == deltaMethod {
		s.dialect = &delta{asked: map[string]bool{}, given: map[string][]string{}}
	} else {
		s.dialect = &wholeState{names: map[string][]string{}, sent: map[string]bool{}, given: map[string][]string{}}
	}
	return s
}

// readEnvoy handles Envoy's requests until the stream ends. If sending to the control plane fails, receiving from it returns the reason.
func (s *session) readEnvoy() {
	for {
		var f frame
		if err := s.down.RecvMsg(&f); err != nil {
			if s.up != nil && errors.Is(err, io.EOF) {
				s.sending.Lock()
				_ = s.up.CloseSend() // receiving from it returns the reason of a failure
				s.sending.Unlock()
			}
			s.failed <- nil // there is no Envoy to serve
			return
		}
		if err := s.fromEnvoy(&f); err != nil {
			if errors.Is(err, errRefused) {
				s.end(err)
			}
			s.failed <- err // which is not read if there is a control plane
			return
		}
	}
}

// fromEnvoy handles a request of Envoy.
func (s *session) fromEnvoy(f *frame) error {
	pass, err := s.dialect.request(s, f)
	passed := err == nil && pass != nil && s.up != nil
	if passed {
		err = s.toControlPlane(pass)
	}
	if pass != f || s.up == nil {
		f.data.Free()
	}
	if passed && err == nil && !s.passed {
		s.passed = true
		err = s.begin()
	}
	return err
}

// begin starts the work that waits for the first request that is passed on.
func (s *session) begin() error {
	close(s.begun)
	if err := s.askForTrust(); err != nil {
		return err
	}
	return s.applied.begin(s.down.Context())
}

// toControlPlane sends a request, and releases its buffers.
func (s *session) toControlPlane(f *frame) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.up.SendMsg(f)
}

// sendOwn sends a request of the relay itself to the control plane.
func (s *session) sendOwn(q question) error {
	b, err := proto.Marshal(s.dialect.own(q))
	if err != nil {
		return err
	}
	return s.toControlPlane(&frame{mem.BufferSlice{mem.SliceBuffer(b)}})
}

// fromControlPlane passes a response on. A response about extensions may have to wait for modules, which holds back no others.
func (s *session) fromControlPlane(f *frame) error {
	whole := f.data.MaterializeToBuffer(mem.DefaultBufferPool()) // a copy only if it came in several parts
	defer whole.Free()
	data := whole.ReadOnlyData()
	switch typeURL := typeOf(data); {
	case typeURL == extension.URL:
		s.extensions.add(f, bytes.Clone(data))
	case typeURL == trustURL && s.trust != nil:
		f.data.Free()
		return s.takeTrust(data)
	default:
		return s.pass(f, data)
	}
	return nil
}

// pass passes a response on as it is, and then reads it: Envoy does not wait for that.
func (s *session) pass(f *frame, data []byte) error {
	s.mu.Lock() // Envoy's answer is handled when the response is noted
	defer s.mu.Unlock()
	if err := s.down.SendMsg(f); err != nil {
		return err
	}
	if r, ok := s.dialect.response(s, data); ok {
		s.pending[r.typeURL] = append(s.pending[r.typeURL], r)
		s.covered.splits(r.split)
		s.covered.answered(r.typeURL, r.names)
		s.applied.sent(s.down.Context(), r.typeURL)
	}
	return nil
}

// waits reports whether Envoy has not answered a response with resources that it warms.
func (s *session) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending[clusterURL])+len(s.pending[listenerURL]) > 0
}

// answered returns the response that Envoy answers; false if its type is not kept. Earlier ones of the type are forgotten: with
// State-of-the-World xDS, an Envoy that was warming clusters answers the last one alone.
func (s *session) answered(typeURL, nonce string) (r response, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.pending[typeURL]
	i := slices.IndexFunc(list, func(r response) bool { return r.nonce == nonce })
	if i < 0 {
		return r, false
	}
	r = list[i]
	s.pending[typeURL] = slices.Delete(list, 0, i+1)
	return r, true
}

// typeOf returns the type of a response of either dialect without reading more of it.
func typeOf(data []byte) string { return textField(data, 4) }

// textField returns a field of a message that is a text.
func textField(data []byte, of protowire.Number) string {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ""
		}
		data = data[n:]
		if number == of && kind == protowire.BytesType {
			text, _ := protowire.ConsumeString(data)
			return text
		}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return ""
		}
		data = data[n:]
	}
	return ""
}

// acknowledged stores the resources of a response, or drops them if Envoy has refused it, with the reason in refusal. Before the control
// plane gets the acknowledgement, it learns which resources Envoy does not use yet, and resources that control access are on disk.
func (s *session) acknowledged(typeURL, nonce string, refusal *rpcstatus.Status) error {
	r, ok := s.answered(typeURL, nonce)
	if !ok {
		return nil
	}
	if refusal == nil {
		r.accept()
		s.store.Commit()
		s.covered.acknowledged(typeURL, r.more)
	} else {
		s.refuses(typeURL, refusal.GetMessage())
	}
	return s.applied.answered(s.down.Context(), typeURL)
}

// answer sends a response that the relay makes itself.
func (s *session) answer(m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("the last known good configuration: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down.SendMsg(&frame{mem.BufferSlice{mem.SliceBuffer(b)}})
}

// nonce returns the nonce of the next response that the relay makes.
func (s *session) nonce() string { return fmt.Sprint(localNonce, s.answers.Add(1)) }

// stop ends the timers and goroutines of the stream.
func (s *session) stop() {
	s.mu.Lock()
	if s.retry != nil {
		s.retry.Stop()
	}
	s.mu.Unlock()
	s.covered.stop()
	s.extensions.stop()
}
