package server

import (
	"context"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// oneRequest is a stream that receives one request.
type oneRequest struct {
	grpc.ServerStream
	raw []byte
}

func (oneRequest) Context() context.Context { return context.Background() }
func (oneRequest) SendMsg(any) error        { return nil }

func (o oneRequest) RecvMsg(m any) error {
	m.(*received).data = o.raw
	return nil
}

// TestRequestsInOrder checks that a request that the handler goroutine processes itself does not overtake one that still waits
// for a worker. Here a NACK of a part comes before the answer to the last part.
func TestRequestsInOrder(t *testing.T) {
	core := protocol.NewCore(protocol.NewShared(""), protocol.Delta)
	encoded := func(q *discoveryv3.DeltaDiscoveryRequest) []byte {
		q.TypeUrl = resource.Cluster.URL()
		return encode(t, q)
	}
	scan := func(q *discoveryv3.DeltaDiscoveryRequest) *protocol.Request {
		scanned, err := request.Scan(protocol.Delta, encoded(q))
		must(t, err)
		return scanned
	}
	core.Step(protocol.Event{Request: scan(&discoveryv3.DeltaDiscoveryRequest{Node: node})}, nil)
	core.Step(protocol.Event{State: clusters(1, 2, 200_000, "x")}, nil)
	core.Step(protocol.Event{Sent: true}, nil)
	core.Step(protocol.Event{Sent: true}, nil)

	nack := scan(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "1c", ErrorDetail: status.New(codes.Internal, "c00000 is bad").Proto()})
	ack := encoded(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "2c"})
	s := &Stream{server: New(nil, Options{}), variant: protocol.Delta, grpc: oneRequest{raw: ack}, requests: make(chan queuedRequest, 1), core: core}
	s.held, _ = s.server.clients.enter("a client", 1)
	s.lastLargeSend.Store(time.Now().Add(-time.Hour).UnixNano())
	s.requests <- queuedRequest{request: nack}
	must(t, s.receiveOne(nil))
	s.mu.Lock() // a goroutine of the stream may be writing
	st := s.core.Status()[resource.Cluster]
	s.mu.Unlock()
	if st.Rejected == "" || st.HeldBack != 1 {
		t.Errorf("the rejection was lost: %+v", st)
	}
}
