package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refuse makes Envoy refuse the clusters of a response with a reason.
func refuse(a *discoveryv3.DeltaDiscoveryResponse, why string) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: a.GetTypeUrl(), ResponseNonce: a.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: why}}
}

// TestRefusedIsSaid: an Envoy that refuses a part of the last known good configuration lists its resources to the control plane itself, on
// another stream. It gets the rest there, and the control plane receives the refusal of its own response. The refused part is requested
// again, with growing pauses, until Envoy accepts it.
func TestRefusedIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		b.store.Accept(clusterURL, clusters(t, "a@1 b@1"), nil)
		e := b.open("")
		b.asked()
		a, err := e.Recv()
		b.must(err)
		b.must(e.Send(refuse(a, "Error adding/updating cluster(s) b: cannot bind")))
		if _, err := e.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "report the resources that it has") {
			t.Fatal(err)
		}
		if got := written(b.store.All(clusterURL)); got != "a@1" {
			t.Errorf("%s is kept", got)
		}
		began, ends := time.Now(), 0
		for ends < 5 {
			e = b.open("")
			b.given(e, "a@1 removed []")
			c, asked := b.asked()
			if asked != `subscribe [*] unsubscribe [] has [a@1] nonce ""` {
				t.Fatal(asked)
			}
			b.must(c.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "1", Resources: clusters(t, "b@1")}))
			a, err = e.Recv()
			b.must(err)
			b.must(e.Send(refuse(a, "Error adding/updating cluster(s) b: cannot bind")))
			if q, err := c.Recv(); err != nil || !strings.Contains(q.GetErrorDetail().GetMessage(), "cannot bind") {
				t.Fatalf("the control plane hears %v, %v", q, err)
			}
			if _, err := e.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "may take by now") {
				t.Fatal(err)
			}
			ends++
		}
		if took := time.Since(began); took < 31*firstAgain || took > 32*firstAgain { // 1 + 2 + 4 + 8 + 16
			t.Errorf("five attempts took %v", took)
		}
		e = b.open("")
		b.given(e, "a@1 removed []")
		c, _ := b.asked()
		b.exchange(c, e, "1", "b@1")
		b.pass(time.Hour)
		if got := written(b.store.All(clusterURL)); got != "a@1 b@1" || c.Context().Err() != nil {
			t.Errorf("%s is kept; the stream: %v", got, c.Context().Err())
		}
	})
}

// TestRefusedForGood: new content that Envoy refuses is not requested again on another stream, unless another process has its port.
func TestRefusedForGood(t *testing.T) {
	for why, again := range map[string]bool{"Error adding/updating listener(s) l: no such filter": false, "Error adding/updating listener(s) l: cannot bind '127.0.0.1:1': Address already in use": true} {
		synctest.Test(t, func(t *testing.T) {
			b, end := newBubble(t)
			defer end()
			e := b.open("")
			c, _ := b.asked()
			b.must(c.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: listenerURL, Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "l"}}}))
			a, err := e.Recv()
			b.must(err)
			b.must(e.Send(refuse(a, why)))
			b.pass(time.Hour)
			if ended := c.Context().Err() != nil; ended != again {
				t.Errorf("%s: the stream ended: %v", why, ended)
			}
		})
	}
}

// TestRefusedAlone: without a control plane Envoy gets the rest at once, so that it serves, and the refused part again later.
func TestRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		b.store.Accept(clusterURL, clusters(t, "a@1 b@1 c@1"), nil)
		b.leave(true)
		e := b.open("")
		a, err := e.Recv()
		b.must(err)
		b.must(e.Send(refuse(a, "Error adding/updating cluster(s) b: cannot bind, c: cannot bind")))
		b.given(e, "a@1 removed []")
		for range 3 {
			a, err = e.Recv()
			if b.must(err); says(a) != "b@1 c@1 removed []" {
				t.Fatal(says(a))
			}
			b.must(e.Send(refuse(a, "b: cannot bind\nc: cannot bind")))
		}
		a, err = e.Recv()
		b.must(err)
		if got := written(b.store.All(clusterURL)); got != "a@1" {
			t.Errorf("%s is kept", got)
		}
		b.must(e.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: a.GetNonce()}))
		synctest.Wait()
		if got := written(b.store.All(clusterURL)); got != "a@1 b@1 c@1" {
			t.Errorf("%s is kept", got)
		}
	})
}

// TestRefusedAll: an Envoy that refuses everything of a type gets no answer that nothing exists.
func TestRefusedAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		b.store.Accept(clusterURL, clusters(t, "a@1"), nil)
		b.leave(true)
		for range 3 {
			e := b.open("")
			a, err := e.Recv()
			if b.must(err); says(a) != "a@1 removed []" {
				t.Fatal(says(a))
			}
			b.must(e.Send(refuse(a, "everything is bad")))
			synctest.Wait()
			b.must(e.CloseSend())
		}
	})
}

// TestRefusedAloneWhole is TestRefusedAlone with State-of-the-World xDS.
func TestRefusedAloneWhole(t *testing.T) {
	p := newPlace(t)
	p.keep("a b")
	p.control.Stop()
	s := p.connectWhole()
	expect := func(want string) *discoveryv3.DiscoveryResponse {
		t.Helper()
		a, err := s.Recv()
		p.must(err)
		var got []string
		for _, body := range a.GetResources() {
			got = append(got, nameOf(body.GetValue()))
		}
		if strings.Join(got, " ") != want {
			t.Fatalf("%v, want %s", got, want)
		}
		return a
	}
	p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL}))
	a := expect("a b")
	p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: a.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "Error adding/updating cluster(s) b: no"}}))
	a = expect("a")
	p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: a.GetNonce(), VersionInfo: a.GetVersionInfo()}))
	a = expect("a b") // later
	if got := p.kept(); got != "a@" {
		t.Errorf("%s is kept", got)
	}
	p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: a.GetNonce(), VersionInfo: a.GetVersionInfo()}))
	p.until("the refused cluster to be kept again", func() bool { return p.kept() == "a@ b@" })
}

// TestBlamed: Envoy names the refused resources; a name within a longer name is not meant. If it names nothing, everything may be to blame.
func TestBlamed(t *testing.T) {
	names := []string{"l", "10.0.0.1_80", "outbound|80||a.b"}
	for why, want := range map[string]string{
		"Error adding/updating listener(s) 10.0.0.1_80: cannot bind '10.0.0.1:80'\n": "10.0.0.1_80",
		"Error adding/updating listener(s) l: a\n10.0.0.1_80: b":                     "l 10.0.0.1_80",
		"Error adding/updating cluster(s) outbound|80||a.b: no":                      "outbound|80||a.b",
		"a wheel: fell off": strings.Join(names, " "),
	} {
		if got := strings.Join(blamed(why, names), " "); got != want {
			t.Errorf("%q: %s, want %s", why, got, want)
		}
	}
}
