package secret

import (
	"context"
	"log/slog"
	"net"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// crashing is a control plane that ends each stream after the first request.
type crashing struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

// DeltaAggregatedResources ends each stream.
func (crashing) DeltaAggregatedResources(s grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "gone")
}

// TestReportToCrashingControlPlane: a stream that the control plane ends is an error of that stream, and not the end of the agent.
func TestReportToCrashingControlPlane(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, crashing{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	board := NewBoard(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- board.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	board.want([]string{"bogus"}, nil) // a name that can never be served
	for v := board.View(); len(problems(v)) == 0; v = board.View() {
		<-v.Next
	}
	dial := func() (*grpc.ClientConn, error) {
		return grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	r := NewReporter(board, dial, &corev3.Node{Id: "sidecar~127.0.0.1~a.b~b"}, slog.New(slog.DiscardHandler))
	for range 50 {
		if err := r.stream(ctx); status.Code(err) != codes.Unavailable {
			t.Fatalf("the stream ended with %v, want that the control plane is gone", err)
		}
	}
}
