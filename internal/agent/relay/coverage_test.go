package relay

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fresh is a bubble whose store is not complete.
func fresh(t *testing.T) (*bubble, func()) {
	b, end := newBubble(t)
	b.restart()
	return b, end
}

// send has the control plane send a response of a type, and Envoy acknowledge it.
func (b *bubble) send(c controlStream, e envoyStream, typeURL, version, nonce string, names ...string) {
	b.Helper()
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, SystemVersionInfo: version, Nonce: nonce}
	for _, name := range names {
		m.Resources = append(m.Resources, &discoveryv3.Resource{Name: name, Version: version})
	}
	b.must(c.Send(m))
	_, err := e.Recv()
	b.must(err)
	b.must(e.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce}))
	_, err = c.Recv()
	b.must(err)
}

// subscribe has Envoy ask for names of a type.
func (b *bubble) subscribe(c controlStream, e envoyStream, typeURL string, names ...string) {
	b.Helper()
	b.must(e.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names}))
	_, err := c.Recv()
	b.must(err)
}

// TestCoverage: the configuration is complete when all parts of clusters and listeners were acknowledged, and the requests that followed
// from them were answered; not before, and not without listeners.
func TestCoverage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := fresh(t)
		defer end()
		e := b.open("")
		c, _ := b.asked()
		partial := func(after string) {
			t.Helper()
			b.pass(time.Minute)
			if b.relay.complete() {
				t.Fatalf("it is complete %s", after)
			}
		}
		b.send(c, e, clusterURL, "7+", "1", "a")
		partial("after a part of the clusters")
		b.send(c, e, clusterURL, "7", "2", "b")
		partial("without listeners")
		b.subscribe(c, e, listenerURL, "*")
		b.send(c, e, listenerURL, "7+", "3", "l")
		partial("after a part of the listeners")
		b.send(c, e, listenerURL, "7", "4", "m")
		b.subscribe(c, e, routeURL, "80", "90")
		partial("without routes")
		b.send(c, e, routeURL, "7", "5", "80")
		b.must(c.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: routeURL, RemovedResources: []string{"90"}, Nonce: "6"}))
		b.pass(2 * settled)
		if !b.relay.complete() || !slices.ContainsFunc(keptTypes(), b.store.Complete) {
			t.Error("it is not complete with everything")
		}
		b.send(c, e, clusterURL, "8+", "7", "c")
		if !b.relay.complete() {
			t.Error("it is not complete any more after a change")
		}
	})
}

// TestCoverageOfReconnected: an Envoy whose stream ended before the configuration was complete receives nothing any more, because it has
// everything. That counts after a while, but not if Envoy has resources that are not in the store.
func TestCoverageOfReconnected(t *testing.T) {
	for has, want := range map[string]bool{"a@7": true, "a@7 x@1": false, "a@6": false} {
		synctest.Test(t, func(t *testing.T) {
			b, end := fresh(t)
			defer end()
			e := b.open("")
			c, _ := b.asked()
			b.send(c, e, clusterURL, "7", "1", "a")
			b.pass(time.Minute)
			b.drop <- struct{}{}
			b.ended(e)
			e = b.open(has)
			c, _ = b.asked()
			b.subscribe(c, e, listenerURL, "*")
			b.send(c, e, listenerURL, "7", "2", "l")
			b.pass(time.Minute)
			if b.relay.complete() != want {
				t.Errorf("with %s it is complete: %v", has, !want)
			}
		})
	}
}

// TestPartial: no Envoy gets a part of the configuration: without a control plane the answer is Unavailable, and with one, it alone answers
// Envoy, and the remains are removed.
func TestPartial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := fresh(t)
		defer end()
		b.store.Accept(clusterURL, clusters(t, "a@1 b@1"), nil)
		b.store.Finish(clusterURL, "names")
		b.leave(true)
		for range 3 {
			e := b.open("")
			if a, err := e.Recv(); status.Code(err) != codes.Unavailable {
				t.Fatalf("%v, %v", a, err)
			}
		}
		b.leave(false)
		b.pass(time.Minute)
		e := b.open("")
		c, asked := b.asked()
		if asked != `subscribe [*] unsubscribe [] has [] nonce ""` {
			t.Fatal(asked)
		}
		b.exchange(c, e, "1", "b@2")
		if got := written(b.store.All(clusterURL)); got != "b@2" {
			t.Errorf("%s is kept", got)
		}
	})
}

// TestCommittedFirst: a change of resources that control access is on disk before the control plane gets Envoy's acknowledgement.
func TestCommittedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		b.store.Accept(listenerURL, []*discoveryv3.Resource{{Name: "l", Version: "1"}}, nil)
		b.stored()
		e := b.open("")
		c, _ := b.asked()
		b.subscribe(c, e, listenerURL, "*")
		b.given(e, "l@1 removed []")
		b.send(c, e, listenerURL, "2", "1", "l")
		if got := written(b.reopened().All(listenerURL)); got != "l@2" {
			t.Errorf("the control plane has heard of l@2, and on disk is %s", got)
		}
		b.must(c.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: listenerURL, Nonce: "2", Resources: []*discoveryv3.Resource{{Name: "l", Version: "3"}}}))
		a, err := e.Recv()
		b.must(err)
		b.must(e.Send(refuse(a, "no")))
		_, err = c.Recv()
		b.must(err)
		if got := written(b.reopened().All(listenerURL)); got != "l@2" {
			t.Errorf("Envoy has refused l@3, and on disk is %s", got)
		}
	})
}

// TestCoverageChecks: a missing part is not looked for all the time, and an acknowledgement shortens the wait for types that Envoy lists.
func TestCoverageChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := fresh(t)
		defer end()
		b.store.Replace(clusterURL, []*discoveryv3.Resource{{Name: "a", Version: "1"}})
		c := newCoverage(b.store)
		defer c.stop()
		c.begin(clusterURL, map[string]string{"a": "1"})
		c.asked(routeURL, []string{"80"}, nil)
		b.pass(time.Second)
		c.acknowledged(clusterURL, false)
		c.acknowledged(listenerURL, false)
		b.pass(time.Second)
		c.mu.Lock()
		running := c.timer != nil
		c.mu.Unlock()
		if complete(b.store) || running {
			t.Errorf("complete %v, and it checks %v, while a route is missing", complete(b.store), running)
		}
		c.answered(routeURL, []string{"80"})
		b.pass(settled)
		if !complete(b.store) {
			t.Error("the last answer does not make it complete")
		}
	})
}
