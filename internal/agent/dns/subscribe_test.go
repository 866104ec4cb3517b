package dns

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/miekg/dns"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/xds/nds"
)

func contextOf(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(context.Background())
}

// await waits until a condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// plane is a control plane that sends the responses of a test.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	requests  chan *discoveryv3.DeltaDiscoveryRequest
	responses chan *discoveryv3.DeltaDiscoveryResponse
	end       chan struct{}
	kept      *lastgood.Store // of the agent
}

const nodeID = "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local"

func (p *plane) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	go func() {
		for {
			q, err := s.Recv()
			if err != nil {
				return
			}
			p.requests <- q
		}
	}()
	for {
		select {
		case m := <-p.responses:
			if err := s.Send(m); err != nil {
				return err
			}
		case <-p.end:
			return errors.New("the end of the stream")
		case <-s.Context().Done():
			return nil
		}
	}
}

// response is a response with names in the form of tableOf; "-NAME" removes one.
func response(nonce string, lines ...string) *discoveryv3.DeltaDiscoveryResponse {
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: nds.URL, Nonce: nonce}
	for _, line := range lines {
		if host, ok := strings.CutPrefix(line, "-"); ok {
			m.RemovedResources = append(m.RemovedResources, host)
			continue
		}
		f := strings.Fields(line)
		m.Resources = append(m.Resources, &discoveryv3.Resource{
			Name: f[0], Version: "v" + nonce, Resource: &anypb.Any{TypeUrl: nds.URL, Value: nds.Entry{Host: f[0], Addresses: f[1:]}.Append(nil)},
		})
	}
	return m
}

// follow runs a proxy that follows a control plane.
func follow(t *testing.T) (*Proxy, *plane) {
	t.Helper()
	s := &plane{
		requests: make(chan *discoveryv3.DeltaDiscoveryRequest, 100), responses: make(chan *discoveryv3.DeltaDiscoveryResponse, 100), end: make(chan struct{}),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	p := newProxy(t, nil, upstreamServer(t, nxdomain))
	dial := func() (*grpc.ClientConn, error) {
		return grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	ctx, cancel := contextOf(t)
	ended := make(chan error)
	s.kept = lastgood.Open(filepath.Join(t.TempDir(), "f"), nodeID, slog.New(slog.DiscardHandler))
	subscriber := NewSubscriber(p, dial, &corev3.Node{Id: nodeID}, s.kept, slog.New(slog.DiscardHandler))
	go func() { ended <- subscriber.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p, s
}

func (p *Proxy) shows(t *testing.T, name, want string) {
	t.Helper()
	await(t, name+": "+want, func() bool { return show(query(t, p, "udp", question(name, dns.TypeA))) == want })
}

// TestFollow: the names are in force when all parts of the first table have arrived; then each change shows. They stay while the control
// plane is gone, and when it is back the agent reports which ones it has.
func TestFollow(t *testing.T) {
	p, s := follow(t)
	first := <-s.requests
	if first.GetNode().GetId() != "agent~10.0.0.1~a.shop~shop.svc.cluster.local" || first.GetTypeUrl() != nds.URL || len(first.GetResourceNamesSubscribe()) != 1 || first.GetResourceNamesSubscribe()[0] != "*" {
		t.Errorf("%v", first)
	}
	p.shows(t, "a.com", "SERVFAIL")
	s.responses <- response("1", "a.com 10.0.0.1", "b.com 10.0.0.2")
	s.responses <- response("2", "c.com 10.0.0.3")
	p.shows(t, "a.com", "NOERROR 10.0.0.1")
	p.shows(t, "c.com", "NOERROR 10.0.0.3")
	p.shows(t, "d.com", "NXDOMAIN")
	await(t, "the agent to be up to date", func() bool { return p.Status().Connected && p.Status().Ready })
	s.responses <- response("3", "a.com 10.0.0.9", "-b.com")
	p.shows(t, "a.com", "NOERROR 10.0.0.9")
	p.shows(t, "b.com", "NXDOMAIN")
	for _, nonce := range []string{"1", "2", "3"} {
		if q := <-s.requests; q.GetResponseNonce() != nonce || q.GetErrorDetail() != nil {
			t.Errorf("%v", q)
		}
	}
	s.end <- struct{}{}
	await(t, "the agent to notice", func() bool { return !p.Status().Connected })
	p.shows(t, "a.com", "NOERROR 10.0.0.9")
	again := <-s.requests
	if v := again.GetInitialResourceVersions(); len(v) != 2 || v["a.com"] != "v3" || v["c.com"] != "v2" {
		t.Errorf("%v", again)
	}
	s.responses <- response("1", "-c.com")
	p.shows(t, "c.com", "NXDOMAIN")
	p.shows(t, "a.com", "NOERROR 10.0.0.9")
	await(t, "the agent to be up to date", func() bool { return p.Status().Connected })
}

// TestKept: an agent that starts without a control plane answers from the names received last, without the ones that it cannot use.
func TestKept(t *testing.T) {
	p, s := follow(t)
	s.responses <- response("1", "a.com 10.0.0.1", "b.com 10.0.0.2", "c.com 10.0.0.3")
	s.responses <- response("2", "a.com 10.0.0.9", "-b.com")
	p.shows(t, "a.com", "NOERROR 10.0.0.9")
	again := newProxy(t, nil, upstreamServer(t, nxdomain))
	NewSubscriber(again, nil, &corev3.Node{Id: nodeID}, s.kept, slog.New(slog.DiscardHandler))
	again.shows(t, "a.com", "NOERROR 10.0.0.9")
	again.shows(t, "b.com", "NXDOMAIN")
	again.shows(t, "c.com", "NOERROR 10.0.0.3")
	if err := again.Ready(); err != nil {
		t.Error(err)
	}
	s.kept.Accept(nds.URL, response("3", "d.com nonsense").GetResources(), nil)
	none := newProxy(t, nil, upstreamServer(t, nxdomain))
	NewSubscriber(none, nil, &corev3.Node{Id: nodeID}, s.kept, slog.New(slog.DiscardHandler))
	none.shows(t, "a.com", "SERVFAIL")
}

// TestRejected: names that cannot be used are rejected, with the reason, and the last ones stay in force.
func TestRejected(t *testing.T) {
	p, s := follow(t)
	<-s.requests
	s.responses <- response("1", "a.com 10.0.0.1")
	<-s.requests
	p.shows(t, "a.com", "NOERROR 10.0.0.1")
	other := response("4", "a.com 10.0.0.5")
	other.Resources[0].Name = "b.com"
	garbage := response("5", "a.com 10.0.0.5")
	garbage.Resources[0].Resource.Value = []byte{0x0a, 0xff}
	for _, m := range []*discoveryv3.DeltaDiscoveryResponse{response("3", "a.com 10.0.0.5", "b.com nonsense"), other, garbage} {
		s.responses <- m
		if q := <-s.requests; q.GetResponseNonce() != m.Nonce || q.GetErrorDetail().GetMessage() == "" {
			t.Errorf("%v", q)
		}
		p.shows(t, "a.com", "NOERROR 10.0.0.1")
	}
}
