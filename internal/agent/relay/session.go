package relay

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/agent/lastgood"
)

// localNonce begins the nonces of responses that the relay makes itself.
const localNonce = "last-known-good/"

// kept are the types that are kept: those without which Envoy does not serve. Secrets are not among them.
func kept(typeURL string) bool {
	switch strings.TrimPrefix(typeURL, "type.googleapis.com/envoy.config.") {
	case "cluster.v3.Cluster", "endpoint.v3.ClusterLoadAssignment", "listener.v3.Listener", "route.v3.RouteConfiguration", "core.v3.TypedExtensionConfig":
		return true
	}
	return false
}

// readable reads a message. One that cannot be read is passed on: who gets it judges it.
func readable(data []byte, m proto.Message) bool { return proto.Unmarshal(data, m) == nil }

// session is one stream of Envoy.
type session struct {
	down  grpc.ServerStream
	store *lastgood.Store
	log   *slog.Logger
	// up is nil if the control plane cannot be reached. sending guards sending on it.
	up      grpc.ClientStream
	sending sync.Mutex
	applied applied
	// failed receives why the stream cannot go on while there is no control plane.
	failed  chan error
	dialect dialect
	// answers counts the responses that the relay has made. Only the goroutine that reads from Envoy uses it.
	answers int

	// mu guards sending to Envoy, and the responses that Envoy has not answered yet, by nonce.
	mu      sync.Mutex
	pending map[string]response
}

// response is a response of a type that is kept.
type response struct {
	typeURL, nonce string
	// accept takes it in when Envoy has acknowledged it.
	accept func()
}

// dialect is what delta xDS and State-of-the-World xDS do differently.
type dialect interface {
	// request handles a request of Envoy, and returns what is passed on; nil for nothing.
	request(s *session, f *frame) (*frame, error)
	// response reads a response of the control plane; false if the type is not kept.
	response(s *session, data []byte) (response, bool)
	// report returns a request that subscribes to names of a type.
	report(typeURL string, names []string) proto.Message
}

func (r *Relay) newSession(method string, down grpc.ServerStream) *session {
	s := &session{down: down, store: r.store, log: r.log, failed: make(chan error, 1), pending: map[string]response{}}
	s.applied.ask, s.applied.tell = r.Warming, func(names []string) error { return s.report(appliedURL, names) }
	if method == deltaMethod {
		s.dialect = &delta{asked: map[string]bool{}}
	} else {
		s.dialect = &wholeState{names: map[string][]string{}, sent: map[string]bool{}}
	}
	return s
}

// readEnvoy handles what Envoy sends until the stream ends. If the control plane takes no more, receiving from it says why.
func (s *session) readEnvoy() {
	for first := true; ; first = false {
		var f frame
		if err := s.down.RecvMsg(&f); err != nil {
			if s.up != nil && errors.Is(err, io.EOF) {
				s.sending.Lock()
				_ = s.up.CloseSend() // receiving from it says why it fails
				s.sending.Unlock()
			}
			s.failed <- nil // nobody is there to be served
			return
		}
		err := s.fromEnvoy(&f)
		if err == nil && first && s.up != nil && s.applied.ask != nil {
			err = s.applied.check(s.down.Context()) // Envoy may have acknowledged on an earlier stream what it does not use yet
		}
		if err != nil {
			s.failed <- err // which nobody reads if there is a control plane
			return
		}
	}
}

// fromEnvoy handles a request of Envoy.
func (s *session) fromEnvoy(f *frame) error {
	pass, err := s.dialect.request(s, f)
	if err == nil && pass != nil && s.up != nil {
		err = s.toControlPlane(pass)
	}
	if pass != f || s.up == nil {
		f.data.Free()
	}
	return err
}

// toControlPlane sends a request, and releases its buffers.
func (s *session) toControlPlane(f *frame) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.up.SendMsg(f)
}

// fromControlPlane passes a response on, and then reads it: Envoy does not wait for that.
func (s *session) fromControlPlane(f *frame) error {
	f.data.Ref() // for reading it when it is on its way
	defer f.data.Free()
	s.mu.Lock() // Envoy's answer is handled when the response is noted
	defer s.mu.Unlock()
	if err := s.down.SendMsg(f); err != nil {
		return err
	}
	r, ok := s.dialect.response(s, f.data.Materialize())
	if ok {
		s.pending[r.nonce] = r
	}
	if s.applied.concerns(r.typeURL) {
		s.applied.unanswered.Add(1)
		s.applied.follow(s.down.Context())
	}
	return nil
}

// acknowledged takes in what a response said, or leaves it if Envoy has refused it. The control plane hears first which clusters and
// listeners Envoy does not use yet.
func (s *session) acknowledged(nonce string, refused bool) error {
	s.mu.Lock()
	r, ok := s.pending[nonce]
	delete(s.pending, nonce)
	s.mu.Unlock()
	if ok && !refused {
		r.accept()
	}
	if !ok || !s.applied.concerns(r.typeURL) {
		return nil
	}
	s.applied.unanswered.Add(-1)
	return s.applied.check(s.down.Context())
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
func (s *session) nonce() string {
	s.answers++
	return fmt.Sprint(localNonce, s.answers)
}

// discard removes resources from the store that Envoy refuses although it accepted them once.
func (s *session) discard(typeURL, why string, names []string) {
	s.log.Warn("Envoy refuses a part of the last known good configuration, which is removed from it", "type", typeURL, "resources", len(names), "error", why)
	s.store.Forget(typeURL, names...)
}
