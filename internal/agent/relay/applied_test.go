package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/pilotmesh/pilot/internal/agent/envoy"
)

// warmingEnvoy returns the warming resources of a test's Envoy.
type warmingEnvoy struct {
	now   atomic.Pointer[envoy.Warming] // nil if Envoy does not answer
	asked atomic.Int32
}

func (w *warmingEnvoy) ask(context.Context, bool) (envoy.Warming, error) {
	w.asked.Add(1)
	if now := w.now.Load(); now != nil {
		return *now, nil
	}
	return envoy.Warming{}, errors.New("it does not answer")
}

// newWarmingPlace is a place whose Envoy is warming something.
func newWarmingPlace(t *testing.T, first *envoy.Warming) (*place, *warmingEnvoy) {
	p, w := newPlace(t), &warmingEnvoy{}
	w.now.Store(first)
	p.relay.warming = w.ask
	return p, w
}

// report returns the next request, which must be a report.
func (p *place) report() string {
	p.Helper()
	q := take(p, p.deltas)
	if q.GetTypeUrl() != appliedURL || q.GetResponseNonce() != "" || len(q.GetResourceNamesUnsubscribe()) > 0 {
		p.Fatalf("%v is no report", q)
	}
	return strings.ReplaceAll(strings.Join(q.GetResourceNamesSubscribe(), " "), "type.googleapis.com/envoy.config.", "")
}

// TestApplied: the control plane receives the warming resources before Envoy's acknowledgement of them, then each change, and nothing as
// long as they do not change.
func TestApplied(t *testing.T) {
	p, w := newWarmingPlace(t, &envoy.Warming{})
	s := p.connect()
	ack := func(typeURL, nonce string) {
		t.Helper()
		p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: nonce}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce}))
	}
	passed := func(nonce string) {
		t.Helper()
		if q := take(p, p.deltas); q.GetResponseNonce() != nonce {
			t.Fatalf("%v, want the answer to %s", q, nonce)
		}
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	passed("")
	ack(clusterURL, "1")
	passed("1")
	w.now.Store(&envoy.Warming{Listeners: []string{"l"}, Clusters: []string{"a", "b"}})
	ack(listenerURL, "2")
	if got := p.report(); got != "cluster.v3.Cluster/a cluster.v3.Cluster/b listener.v3.Listener/l" {
		t.Error(got)
	}
	passed("2")
	ack(listenerURL, "3")
	passed("3")
	w.now.Store(&envoy.Warming{MoreClusters: true})
	if got := p.report(); got != "cluster.v3.Cluster/*" {
		t.Error(got)
	}
	w.now.Store(&envoy.Warming{})
	if got := p.report(); got != "" {
		t.Error(got)
	}
	asked := w.asked.Load()
	ack(assignmentURL, "4")
	passed("4")
	if now := w.asked.Load(); now != asked {
		t.Errorf("Envoy was asked %d times although it warms no assignments", now-asked)
	}
}

// TestAppliedUnanswered: the control plane receives the warming resources although Envoy withholds the acknowledgement because of them.
func TestAppliedUnanswered(t *testing.T) {
	p, w := newWarmingPlace(t, &envoy.Warming{})
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	take(p, p.deltas)
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "1"}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	asked := w.asked.Load()
	p.until("Envoy to be asked while it does not answer", func() bool { return w.asked.Load() > asked+1 })
	w.now.Store(&envoy.Warming{Clusters: []string{"a"}})
	if got := p.report(); got != "cluster.v3.Cluster/a" {
		t.Error(got)
	}
	w.now.Store(&envoy.Warming{})
	if got := p.report(); got != "" {
		t.Error(got)
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: "1"}))
	if q := take(p, p.deltas); q.GetResponseNonce() != "1" {
		t.Errorf("%v", q)
	}
}

// TestAppliedOfEarlier: the control plane receives at the beginning of a stream the warming resources of earlier streams.
func TestAppliedOfEarlier(t *testing.T) {
	p, _ := newWarmingPlace(t, &envoy.Warming{Starting: true})
	s := p.connectWhole()
	p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL}))
	take(p, p.wholes)
	if q := take(p, p.wholes); q.GetTypeUrl() != appliedURL || strings.Join(q.GetResourceNames(), " ") != clusterURL+"/* "+listenerURL+"/*" {
		t.Errorf("%v", q)
	}
}

// TestAppliedStarting: an Envoy that starts is asked more often than one that warms resources, however long its start takes.
func TestAppliedStarting(t *testing.T) {
	a := &applied{ask: func(context.Context, bool) (envoy.Warming, error) { return envoy.Warming{Starting: true}, nil }, report: func([]string) error { return nil }}
	for _, starting := range []bool{true, false} {
		if _, err := a.once(t.Context(), true, false); err != nil {
			t.Fatal(err)
		}
		want := lastAsk
		if starting {
			want = startAsk
		}
		if got := a.atMost(lastAsk); got != want {
			t.Errorf("starting %v: the next query is after %s, want %s", starting, got, want)
		}
		a.ask = func(context.Context, bool) (envoy.Warming, error) { return envoy.Warming{Clusters: []string{"a"}}, nil }
	}
}

// TestAppliedSilent: an Envoy that does not answer delays an acknowledgement no longer than askLimit, and is asked again.
func TestAppliedSilent(t *testing.T) {
	p, w := newWarmingPlace(t, nil)
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	take(p, p.deltas)
	w.now.Store(&envoy.Warming{Clusters: []string{"a"}})
	if got := p.report(); got != "cluster.v3.Cluster/a" {
		t.Error(got)
	}
}

// TestAppliedSparing: Envoy is asked once at the beginning of a stream, about clusters only if it may be warming some, and not at all when it
// has acknowledged clusters at once.
func TestAppliedSparing(t *testing.T) {
	var asked []bool // about clusters
	p := newPlace(t)
	p.relay.warming = func(_ context.Context, clusters bool) (envoy.Warming, error) {
		asked = append(asked, clusters)
		return envoy.Warming{}, nil
	}
	s := p.connect()
	for i, typeURL := range []string{clusterURL, clusterURL, listenerURL, clusterURL} {
		p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}))
		take(p, p.deltas)
		nonce := strings.Repeat("x", i+1)
		p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: nonce}
		_, err := s.Recv()
		p.must(err)
		p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce}))
		if q := take(p, p.deltas); q.GetResponseNonce() != nonce {
			t.Errorf("%v, want the answer to %q", q, nonce)
		}
	}
	if !slices.Equal(asked, []bool{true, false}) {
		t.Errorf("it was asked %v", asked)
	}
}

// TestAppliedSkipped: an Envoy that was warming clusters may answer the last of several responses alone, as it does with State-of-the-World
// xDS. Then it is not asked any more.
func TestAppliedSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		var asked atomic.Int32
		b.relay.warming = func(context.Context, bool) (envoy.Warming, error) {
			asked.Add(1)
			return envoy.Warming{}, nil
		}
		e := b.open("")
		c, _ := b.asked()
		b.must(c.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "1"}))
		_, err := e.Recv()
		b.must(err)
		b.exchange(c, e, "2", "a@1")
		b.pass(lastAsk)
		before := asked.Load()
		b.pass(time.Hour)
		if n := asked.Load() - before; n > 0 {
			t.Errorf("it was asked %d times", n)
		}
	})
}

// TestDraining: the report of connections to earlier listeners reaches the control plane before Envoy's acknowledgement of the change, and
// then until there are none. Connections that were opened since do not count.
func TestDraining(t *testing.T) {
	p, _ := newWarmingPlace(t, &envoy.Warming{})
	var now atomic.Pointer[envoy.Draining]
	now.Store(&envoy.Draining{})
	p.relay.drains = func(context.Context) (envoy.Draining, error) {
		if d := now.Load(); d != nil {
			return *d, nil
		}
		return envoy.Draining{}, errors.New("it does not answer")
	}
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerURL}))
	take(p, p.deltas)
	now.Store(&envoy.Draining{FilterChains: 2, Connections: 5})
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: listenerURL, Nonce: "1"}
	_, err := s.Recv()
	p.must(err)
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerURL, ResponseNonce: "1"}))
	drains := func(want string) {
		t.Helper()
		if got := strings.TrimPrefix(p.report(), drainingURL); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	drains("/2/5")
	if q := take(p, p.deltas); q.GetResponseNonce() != "1" {
		t.Fatalf("%v", q)
	}
	now.Store(&envoy.Draining{FilterChains: 2, Connections: 9})
	now.Store(nil)
	now.Store(&envoy.Draining{FilterChains: 1, Connections: 9})
	drains("/1/5")
	now.Store(&envoy.Draining{FilterChains: 1, Connections: 3})
	drains("/1/3")
	now.Store(&envoy.Draining{})
	drains("")
}
