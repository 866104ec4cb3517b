package agent

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestStatisticsAreSent to a statsd server and to a metrics service; the latter learns which proxy they are from.
func TestStatisticsAreSent(t *testing.T) {
	b := newBed(t)
	b.serve()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close() //nolint:errcheck // nothing is buffered
	service := newMetricsService(t)
	o := options("--statsdUdpAddress=" + udp.LocalAddr().String())
	o.Env = []string{"PROXY_CONFIG={envoyMetricsService: {address: '" + service.address + "', tcpKeepalive: {probes: 3}}}"}
	b.ready(o, testbed.Node{})
	if err := udp.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for packet := make([]byte, 1<<16); ; {
		n, _, err := udp.ReadFrom(packet)
		if err != nil {
			t.Fatalf("no packet with a statistic of Envoy: %v", err)
		}
		if bytes.Contains(packet[:n], []byte("envoy.server.live:1|g")) {
			break
		}
	}
	select {
	case id := <-service.senders:
		if !strings.HasPrefix(id, "sidecar~127.1.0.1~app.shop~") {
			t.Errorf("the sender is %q", id)
		}
	case <-time.After(patience):
		t.Error("the metrics service got nothing")
	}
}

// metricsService is a gRPC service for Envoy's statistics. It reports the first proxy that sent any.
type metricsService struct {
	metricsv3.UnimplementedMetricsServiceServer

	address string
	senders chan string
}

func newMetricsService(t *testing.T) *metricsService {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &metricsService{address: l.Addr().String(), senders: make(chan string, 1)}
	server := grpc.NewServer()
	metricsv3.RegisterMetricsServiceServer(server, s)
	go func() { _ = server.Serve(l) }() // ends by Stop
	t.Cleanup(server.Stop)
	return s
}

// StreamMetrics implements metricsv3.MetricsServiceServer.
func (s *metricsService) StreamMetrics(stream metricsv3.MetricsService_StreamMetricsServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	if len(m.GetEnvoyMetrics()) == 0 {
		return errors.New("no statistics")
	}
	select {
	case s.senders <- m.GetIdentifier().GetNode().GetId():
	default: // the first proxy is recorded already
	}
	<-stream.Context().Done()
	return nil
}
