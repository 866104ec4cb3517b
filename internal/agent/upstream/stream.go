package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/run/retry"
)

// agentRole replaces the proxy's role in the node id of the agent's own streams.
const agentRole = "agent"

// AgentNode returns the node by which the agent of a proxy shows itself on its own streams.
func AgentNode(proxy *corev3.Node) *corev3.Node {
	node := proto.CloneOf(proxy)
	if _, rest, ok := strings.Cut(node.GetId(), "~"); ok {
		node.Id = agentRole + "~" + rest
	}
	return node
}

// Shortest and longest pause between attempts to reach the control plane.
const firstRetry, lastRetry = 200 * time.Millisecond, 15 * time.Second

// Keep opens streams, one after the other, until ctx is cancelled. follow follows one until it ends, and reports whether it received anything: then the pauses
// between attempts begin again with the shortest. effect is what the end means for the proxy, for the log.
func Keep(ctx context.Context, log *slog.Logger, effect string, follow func(context.Context) (received bool, err error)) {
	for pauses := retry.Pauses(firstRetry, lastRetry); ctx.Err() == nil; {
		received, err := follow(ctx)
		if received {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		log.Debug("a stream to the control plane has ended", "effect", effect, "error", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Stream is a delta stream of the agent itself; Envoy's streams go through the relay.
type Stream struct {
	// Responses delivers what the control plane sends.
	Responses <-chan *discoveryv3.DeltaDiscoveryResponse
	// Ended delivers why the stream has ended.
	Ended <-chan error

	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	done   chan struct{}
}

// OpenStream opens a stream on a connection of its own. The caller closes it.
func OpenStream(ctx context.Context, dial func() (*grpc.ClientConn, error), options ...grpc.CallOption) (*Stream, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, options...)
	if err != nil {
		cancel()
		_ = conn.Close() // nothing was sent
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	responses, ended := make(chan *discoveryv3.DeltaDiscoveryResponse), make(chan error, 1)
	s := &Stream{Responses: responses, Ended: ended, stream: stream, conn: conn, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ended <- receive(ctx, stream, responses)
	}()
	return s, nil
}

// receive hands on responses until the stream ends.
func receive(ctx context.Context, stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, to chan<- *discoveryv3.DeltaDiscoveryResponse) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Send sends a request.
func (s *Stream) Send(q *discoveryv3.DeltaDiscoveryRequest) error { return s.stream.Send(q) }

// Close ends the stream and its connection.
func (s *Stream) Close() {
	s.cancel()
	_ = s.conn.Close() // nothing is buffered
	<-s.done
}
