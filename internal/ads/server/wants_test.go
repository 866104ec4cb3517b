package server

import (
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/metadata"

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

// demands asks for virtual hosts, and returns which of them come and which the server says do not exist.
func demands(t *testing.T, s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, names ...string) (has, absent []string) {
	t.Helper()
	must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.VirtualHost.URL(), ResourceNamesSubscribe: names}))
	for len(has)+len(absent) < len(names) {
		m, err := s.Recv()
		must(t, err)
		for _, r := range m.Resources {
			if r.Resource == nil {
				absent = append(absent, r.Name)
			} else {
				has = append(has, r.Name)
			}
		}
		must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}))
	}
	slices.Sort(has)
	slices.Sort(absent)
	return has, absent
}

// TestHostsOfOneClient: all sidecars of an identity have so many hosts on demand at most. Further names are answered with nothing, no stream ends,
// the user is informed, and sidecars of others get theirs.
func TestHostsOfOneClient(t *testing.T) {
	r := newRig(t, Options{Admit: whoever, MaxHostsOf: 3})
	r.mesh.demand = true
	open := func(who string) discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
		s, err := r.dial(t).DeltaAggregatedResources(metadata.AppendToOutgoingContext(testContext(t), "who", who))
		must(t, err)
		must(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
		return s
	}
	one, two, other := open("web"), open("web"), open("other")
	if has, absent := demands(t, one, "80/a", "80/b"); len(has) != 2 || len(absent) != 0 {
		t.Errorf("as many as it may: %v, absent %v", has, absent)
	}
	if has, absent := demands(t, two, "80/c", "80/d"); len(has) != 0 || len(absent) != 2 {
		t.Errorf("more: %v, absent %v", has, absent)
	}
	if has, absent := demands(t, two, "80/c"); len(has) != 1 || len(absent) != 0 {
		t.Errorf("the last one: %v, absent %v", has, absent)
	}
	if has, absent := demands(t, other, "80/a", "80/b", "80/c"); len(has) != 3 || len(absent) != 0 {
		t.Errorf("somebody else: %v, absent %v", has, absent)
	}
	r.mesh.mu.Lock()
	if len(r.mesh.full) != 1 || !strings.Contains(r.mesh.full[0], "spiffe://t/ns/n/sa/web have asked for as many hosts") {
		t.Errorf("the reasons are %q", r.mesh.full)
	}
	r.mesh.mu.Unlock()
	must(t, two.CloseSend())
	for _, err := two.Recv(); err == nil; _, err = two.Recv() {
	}
	waitFor(testContext(t), t, "its host is free", func() bool {
		has, _ := demands(t, one, "80/e")
		return len(has) == 1
	})
}
