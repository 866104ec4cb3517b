package relay

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	meshconfig "istio.io/api/mesh/v1alpha1"
)

// trusted are the roots that the relay has received last.
type trusted struct {
	mu    sync.Mutex
	texts []string
}

func (r *trusted) take(texts []string) error {
	if slices.Contains(texts, "bad") {
		return errors.New("bad is no certificate")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = texts
	return nil
}

func (r *trusted) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.texts)
}

func bundle(t *testing.T, texts ...string) *anypb.Any {
	t.Helper()
	body, err := anypb.New(&meshconfig.ProxyConfig{CaCertificatesPem: texts})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestTrust: the relay asks for trust bundles on Envoy's stream, and Envoy does not see them. A bad one leaves the last good one in force.
func TestTrust(t *testing.T) {
	p := newPlace(t)
	var roots trusted
	p.relay.trust = roots.take
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	take(p, p.deltas)
	if q := take(p, p.deltas); q.GetTypeUrl() != trustURL || asks(q) != `subscribe [] unsubscribe [] has [] nonce ""` {
		t.Fatalf("%v", q)
	}
	send := func(nonce string, body *anypb.Any) *discoveryv3.DeltaDiscoveryRequest {
		t.Helper()
		p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: trustURL, Nonce: nonce, Resources: []*discoveryv3.Resource{{Resource: body}}}
		q := take(p, p.deltas)
		if q.GetTypeUrl() != trustURL || q.GetResponseNonce() != nonce {
			t.Fatalf("%v", q)
		}
		return q
	}
	if q := send("1", bundle(t, "a", "b")); q.GetErrorDetail() != nil || roots.String() != "[a b]" {
		t.Errorf("%v, %v", q, roots.String())
	}
	if q := send("2", bundle(t, "bad")); q.GetErrorDetail().GetMessage() != "bad is no certificate" || roots.String() != "[a b]" {
		t.Errorf("%v, %v", q, roots.String())
	}
	if q := send("3", &anypb.Any{TypeUrl: "x"}); q.GetErrorDetail() == nil || roots.String() != "[a b]" {
		t.Errorf("%v, %v", q, roots.String())
	}
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "4", Resources: clusters(t, "a@1")}
	if a, err := s.Recv(); err != nil || a.GetTypeUrl() != clusterURL {
		t.Errorf("Envoy gets %v, %v", a, err)
	}
}

// TestTrustWhole: the same with State-of-the-World xDS.
func TestTrustWhole(t *testing.T) {
	p := newPlace(t)
	var roots trusted
	p.relay.trust = roots.take
	s := p.connectWhole()
	p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterURL}))
	take(p, p.wholes)
	take(p, p.wholes)
	p.answers <- &discoveryv3.DiscoveryResponse{TypeUrl: trustURL, VersionInfo: "v", Nonce: "5", Resources: []*anypb.Any{bundle(t)}}
	if q := take(p, p.wholes); q.GetTypeUrl() != trustURL || q.GetVersionInfo() != "v" || q.GetResponseNonce() != "5" || roots.String() != "[]" {
		t.Errorf("%v, %v", q, roots.String())
	}
}
