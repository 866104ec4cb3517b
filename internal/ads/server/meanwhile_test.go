package server

import (
	"context"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// interrupted is a stream that calls during while a message is written.
type interrupted struct {
	grpc.ServerStream
	sent   int
	during func()
}

func (*interrupted) Context() context.Context { return context.Background() }

func (i *interrupted) SendMsg(any) error {
	if i.sent++; i.sent == 1 {
		i.during()
	}
	return nil
}

// onFirstSend makes a stream that waits for its first state. It calls during while that state is sent.
func onFirstSend(t *testing.T, during func(s *Stream)) (*Stream, *interrupted) {
	core := protocol.NewCore(protocol.NewShared(""), protocol.Delta)
	q := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}
	scanned, err := request.Scan(protocol.Delta, encode(t, q))
	must(t, err)
	core.Step(protocol.Event{Request: scanned}, nil)
	g := &interrupted{}
	s := &Stream{server: New(nil, Options{}), variant: protocol.Delta, grpc: g, requests: make(chan queuedRequest, 1), core: core}
	s.held, _ = s.server.clients.enter("a client", 1)
	g.during = func() { during(s) }
	return s, g
}

// waiting is the number of streams in the rings.
func (s *Server) waiting() int { return len(s.quick.dirty) + len(s.slow.dirty) }

// TestStateWhileStreamIsProcessed checks that a state that arrives while a worker processes the stream is not lost, although the
// stream still counts as queued.
func TestStateWhileStreamIsProcessed(t *testing.T) {
	s, g := onFirstSend(t, func(s *Stream) { s.Update(clusters(2, 2, 10, "y")) })
	s.Update(clusters(1, 1, 10, "x"))
	if n := s.server.waiting(); n != 1 {
		t.Fatalf("%d streams are queued after an update, want 1", n)
	}
	s.process(nil)
	if g.sent != 1 {
		t.Fatalf("%d messages were sent, want 1", g.sent)
	}
	if n := s.server.waiting(); n != 2 {
		t.Errorf("the state that arrived meanwhile is not processed")
	}
	if !s.queued.Load() {
		t.Error("the stream waits in a ring and does not know")
	}
}

// TestRequestWhileStreamIsProcessed is the same for a request.
func TestRequestWhileStreamIsProcessed(t *testing.T) {
	s, _ := onFirstSend(t, func(s *Stream) {
		q, err := request.Scan(protocol.Delta, encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL(), ResponseNonce: "1c"}))
		must(t, err)
		s.requests <- queuedRequest{request: q}
		s.queue()
	})
	s.Update(clusters(1, 1, 10, "x"))
	s.process(nil)
	if n := s.server.waiting(); n != 2 {
		t.Errorf("the request that arrived meanwhile is not processed")
	}
	s.process(nil)
	st := s.Status()
	if rev, ok := st.Types.Settled(); !ok || rev != 1 {
		t.Errorf("the acknowledgement was lost: settled at %d, %v", rev, ok)
	}
}

// TestWriteEndsWhileStreamIsProcessed is the same for the end of a write.
func TestWriteEndsWhileStreamIsProcessed(t *testing.T) {
	s, _ := onFirstSend(t, func(s *Stream) {
		s.sent.Store(true)
		s.queue()
	})
	s.Update(clusters(1, 1, 10, "x"))
	s.process(nil)
	if n := s.server.waiting(); n != 2 {
		t.Errorf("the end of the write is not processed")
	}
}

// endingMesh ends a stream while it connects it.
type endingMesh struct {
	Attachment // for the methods that are not called
	closed     int
}

func (m *endingMesh) Connect(_ context.Context, _ *corev3.Node, s *Stream) (Attachment, error) {
	s.end(nil)
	s.detach() // as its handler does
	return m, nil
}

func (m *endingMesh) Close() { m.closed++ }

// TestStreamEndsWhileConnecting checks that the attachment of a stream that ended during Connect is closed exactly once.
func TestStreamEndsWhileConnecting(t *testing.T) {
	m := &endingMesh{}
	ctx, cancel := context.WithCancel(t.Context())
	s := &Stream{server: New(m, Options{}), grpc: &interrupted{}, abort: cancel, requests: make(chan queuedRequest, 1), core: protocol.NewCore(protocol.NewShared(""), protocol.Delta)}
	s.held, _ = s.server.clients.enter("a client", 1)
	s.connect(&protocol.Request{Node: encode(t, node)})
	if m.closed != 1 || ctx.Err() == nil {
		t.Errorf("the attachment was closed %d times, want once; the stream's context ended with %v", m.closed, ctx.Err())
	}
	s.detach()
	if m.closed != 1 {
		t.Errorf("the attachment was closed %d times, want once", m.closed)
	}
}
