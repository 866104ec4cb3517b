package patched

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/internal/agent/lastgood"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take to be seen.
const patience = 20 * time.Second

// plane is a control plane that sends the responses of a test.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	requests  chan *discoveryv3.DeltaDiscoveryRequest
	responses chan *discoveryv3.DeltaDiscoveryResponse
}

func (p *plane) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		q, err := s.Recv()
		if err != nil {
			return err
		}
		p.requests <- q
		select {
		case m := <-p.responses:
			if m == nil {
				return errors.New("the end of the stream")
			}
			if err := s.Send(m); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

// response has a bootstrap with an interval; 0 for none.
func response(t *testing.T, nonce string, seconds ...int) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: bootstrapType, Nonce: nonce}
	for _, n := range seconds {
		body, err := anypb.New(&bootstrapv3.Bootstrap{StatsFlushInterval: durationpb.New(time.Duration(n) * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		m.Resources = append(m.Resources, &discoveryv3.Resource{Name: "bootstrap", Version: nonce, Resource: body})
	}
	return m
}

// follow runs a follower until the end of the test. applied gets the interval of each patch that it applies; a patch of 13 seconds is refused.
func follow(t *testing.T, path string) (f *Follower, p *plane, applied chan time.Duration) {
	t.Helper()
	p = &plane{requests: make(chan *discoveryv3.DeltaDiscoveryRequest, 100), responses: make(chan *discoveryv3.DeltaDiscoveryResponse, 100)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, p)
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	applied = make(chan time.Duration, 100)
	dial := func() (*grpc.ClientConn, error) {
		return grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	f = New(dial, &corev3.Node{Id: nodeID}, "router", store(path), func(_ context.Context, b *bootstrapv3.Bootstrap) error {
		if b.GetStatsFlushInterval().GetSeconds() == 13 {
			return errors.New("unlucky")
		}
		applied <- b.GetStatsFlushInterval().AsDuration()
		return nil
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f, p, applied
}

const nodeID = "router~10.0.0.1~a.shop~shop.svc.cluster.local"

func store(path string) *lastgood.Store {
	return lastgood.Open(path, nodeID, slog.New(slog.DiscardHandler))
}

// next returns what comes from a channel.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("waited in vain")
	}
	return v
}

// TestFollow: the follower names the role of its proxy, applies each answer, acknowledges it afterwards, and says why it refuses one. After the end of a
// stream it opens another one.
func TestFollow(t *testing.T) {
	f, p, applied := follow(t, filepath.Join(t.TempDir(), "kept"))
	q := next(t, p.requests)
	if q.GetNode().GetId() != "agent~10.0.0.1~a.shop~shop.svc.cluster.local" || q.GetNode().GetMetadata().GetFields()[roleKey].GetStringValue() != "router" || q.GetTypeUrl() != bootstrapType {
		t.Errorf("asks with %v", q)
	}
	select {
	case <-f.Known():
		t.Error("something is known before there is an answer")
	default:
	}
	p.responses <- response(t, "1")
	if q := next(t, p.requests); q.GetResponseNonce() != "1" || q.GetErrorDetail() != nil {
		t.Errorf("answers with %v", q)
	}
	if got := next(t, applied); got != 0 {
		t.Errorf("applied %v although there is nothing", got)
	}
	next(t, f.Known())
	for _, c := range []struct {
		nonce string
		sent  []int
		why   string
		want  time.Duration
	}{
		{"2", []int{9}, "", 9 * time.Second}, {"3", []int{13}, "unlucky", 0}, {"4", []int{1, 2}, errSeveral.Error(), 0}, {"5", nil, "", 0}, {"6", []int{8}, "", 8 * time.Second},
	} {
		p.responses <- response(t, c.nonce, c.sent...)
		if q := next(t, p.requests); q.GetResponseNonce() != c.nonce || q.GetErrorDetail().GetMessage() != c.why {
			t.Errorf("%s: answers with %v", c.nonce, q)
		}
		if c.why == "" && next(t, applied) != c.want {
			t.Errorf("%s: not applied", c.nonce)
		}
	}
	p.responses <- nil
	if q := next(t, p.requests); q.GetNode() == nil {
		t.Errorf("goes on with %v", q)
	}
	p.responses <- response(t, "7", 5)
	if got := next(t, applied); got != 5*time.Second {
		t.Errorf("applied %v", got)
	}
}

// TestRestore: an agent that gets no answer applies the stored one, and after an answer it does not.
func TestRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept")
	s := store(path)
	s.Replace(bootstrapType, response(t, "1", 4).GetResources())
	s.Finish(bootstrapType)
	ctx, cancel := context.WithCancel(context.Background())
	written := make(chan error)
	go func() { written <- s.Run(ctx) }()
	cancel()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	f, p, applied := follow(t, path)
	if err := f.Restore(t.Context()); err != nil || next(t, applied) != 4*time.Second {
		t.Errorf("not restored: %v", err)
	}
	next(t, p.requests)
	p.responses <- response(t, "1", 6)
	if got := next(t, applied); got != 6*time.Second {
		t.Errorf("applied %v", got)
	}
	next(t, f.Known())
	if err := f.Restore(t.Context()); err != nil || len(applied) > 0 {
		t.Errorf("restored after an answer: %v", err)
	}
}
