package server

import (
	"context"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// interrupted is a stream on which something happens while a message is written.
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

// onFirstSend makes a stream that waits for its first state and on which something happens while that is sent.
func onFirstSend(t *testing.T, during func(s *Stream)) (*Stream, *interrupted) {
	core := protocol.NewCore(protocol.NewShared(""), protocol.Delta)
	q := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}
	scanned, err := request.Scan(protocol.Delta, encode(t, q))
	must(t, err)
	core.Step(protocol.Event{Request: scanned}, nil)
	g := &interrupted{}
	s := &Stream{server: New(nil, Options{}), variant: protocol.Delta, grpc: g, asked: make(chan asked, 1), core: core}
	g.during = func() { during(s) }
	return s, g
}

// waiting counts the streams that workers are to look at.
func (s *Server) waiting() int { return len(s.quick.dirty) + len(s.slow.dirty) }

// TestStateWhileStreamIsLookedAt: a state that comes while a worker looks at the stream finds it queued, and must not be
// forgotten for that.
func TestStateWhileStreamIsLookedAt(t *testing.T) {
	s, g := onFirstSend(t, func(s *Stream) { s.Update(clusters(2, 2, 10, "y")) })
	s.Update(clusters(1, 1, 10, "x"))
	if n := s.server.waiting(); n != 1 {
		t.Fatalf("%d streams are to be looked at after an update, want 1", n)
	}
	s.refresh(nil)
	if g.sent != 1 {
		t.Fatalf("%d messages were sent, want 1", g.sent)
	}
	if n := s.server.waiting(); n != 2 {
		t.Errorf("the state that came meanwhile is not looked at")
	}
	if !s.queued.Load() {
		t.Error("the stream waits in a ring and does not know")
	}
}

// TestRequestWhileStreamIsLookedAt is the same for a request.
func TestRequestWhileStreamIsLookedAt(t *testing.T) {
	s, _ := onFirstSend(t, func(s *Stream) {
		q, err := request.Scan(protocol.Delta, encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL(), ResponseNonce: "1c"}))
		must(t, err)
		s.asked <- asked{request: q}
		s.queue()
	})
	s.Update(clusters(1, 1, 10, "x"))
	s.refresh(nil)
	if n := s.server.waiting(); n != 2 {
		t.Errorf("the request that came meanwhile is not looked at")
	}
	s.refresh(nil)
	if rev, ok := s.Settled(); !ok || rev != 1 {
		t.Errorf("the acknowledgement was lost: settled at %d, %v", rev, ok)
	}
}

// endingMesh ends a stream while it connects it.
type endingMesh struct {
	Attachment // for what is not called
	closed     int
}

func (m *endingMesh) Connect(_ context.Context, _ *corev3.Node, s *Stream) (Attachment, error) {
	s.end(nil)
	s.detach() // as its handler does
	return m, nil
}

func (m *endingMesh) Close() { m.closed++ }

// TestStreamEndsWhileConnecting: what the mesh gives for a stream that ended meanwhile is closed, once.
func TestStreamEndsWhileConnecting(t *testing.T) {
	m := &endingMesh{}
	ctx, cancel := context.WithCancel(t.Context())
	s := &Stream{server: New(m, Options{}), grpc: &interrupted{}, abort: cancel, asked: make(chan asked, 1), core: protocol.NewCore(protocol.NewShared(""), protocol.Delta)}
	s.connect(encode(t, node))
	if m.closed != 1 || ctx.Err() == nil {
		t.Errorf("the attachment was closed %d times, want once; the stream's context ended with %v", m.closed, ctx.Err())
	}
	s.detach()
	if m.closed != 1 {
		t.Errorf("the attachment was closed %d times, want once", m.closed)
	}
}
