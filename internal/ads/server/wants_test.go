package server

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestWants checks that names a client asks for are answered over gRPC even before its class has a state, and that the status of
// the stream shows them.
func TestWants(t *testing.T) {
	r := newRig(t, Options{})
	s, err := r.dial(t).DeltaAggregatedResources(testContext(t))
	must(t, err)
	must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: node, TypeUrl: resource.Extension.URL(), ResourceNamesSubscribe: []string{"a", "b", "none"},
	}))
	var has, removed []string
	for len(has)+len(removed) < 3 {
		m, err := s.Recv()
		must(t, err)
		for _, res := range m.Resources {
			has = append(has, res.Name)
		}
		removed = append(removed, m.RemovedResources...)
		must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}))
	}
	if slices.Sort(has); !slices.Equal(has, []string{"a", "b"}) || !slices.Equal(removed, []string{"none"}) {
		t.Errorf("has %v, removed %v", has, removed)
	}
	waitFor(testContext(t), t, "an acknowledgement", func() bool {
		w := r.server.Streams()[0].Wants
		return len(w) == 1 && w[0].Type == resource.Extension && w[0].Names == 3 && slices.Equal(w[0].Missing, []string{"none"}) && !w[0].Unanswered
	})
}
