package relay

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// headOf is a split route configuration.
func headOf(t *testing.T, name, version string) *discoveryv3.Resource {
	t.Helper()
	value, err := anypb.New(&routev3.RouteConfiguration{Name: name, Vhds: &routev3.Vhds{ConfigSource: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return &discoveryv3.Resource{Name: name, Version: version, Resource: value}
}

// keepSplit puts two split route configurations into the store: 80 with its virtual hosts, and 81 without.
func (p *place) keepSplit() {
	p.store.Accept(routeURL, []*discoveryv3.Resource{headOf(p.T, "80", "h1"), headOf(p.T, "81", "h1")}, nil)
	p.store.Accept(hostURL, []*discoveryv3.Resource{{Name: "80/a", Version: "1"}, {Name: "80/b", Version: "2"}}, nil)
	p.keep("a@1")
}

// TestFreshEnvoyGetsHosts: a split route configuration is replayed with its virtual hosts in one response, and not without them. The control
// plane gets the versions of both.
func TestFreshEnvoyGetsHosts(t *testing.T) {
	p := newPlace(t)
	p.keepSplit()
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeURL, ResourceNamesSubscribe: []string{"80", "81"}}))
	if got := asks(take(p, p.deltas)); got != `subscribe [80 81] unsubscribe [] has [80@h1] nonce ""` {
		t.Error(got)
	}
	var nonces []string
	for _, want := range []string{"80@h1 removed []", "80/a@1 80/b@2 removed []"} {
		a, err := s.Recv()
		if err != nil || says(a) != want {
			t.Fatalf("%v, %v; want %s", a, err, want)
		}
		nonces = append(nonces, a.GetNonce())
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: hostURL}))
	if got := asks(take(p, p.deltas)); got != `subscribe [] unsubscribe [] has [80/a@1 80/b@2] nonce ""` {
		t.Error(got)
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeURL, ResponseNonce: nonces[0]}))
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: hostURL, ResponseNonce: nonces[1]}))
	// The virtual hosts of a route configuration that Envoy drops are dropped, too.
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeURL, ResourceNamesUnsubscribe: []string{"80"}}))
	if got := asks(take(p, p.deltas)); got != `subscribe [] unsubscribe [80] has [] nonce ""` {
		t.Error(got)
	}
	if got := written(p.store.All(hostURL)); got != "" {
		t.Errorf("virtual hosts of a dropped route configuration are kept: %s", got)
	}
}

// TestHostsAlone: without a control plane, too; a request for virtual hosts needs no answer.
func TestHostsAlone(t *testing.T) {
	p := newPlace(t)
	p.control.Stop()
	p.keepSplit()
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeURL, ResourceNamesSubscribe: []string{"80", "81"}}))
	for _, want := range []string{"80@h1 removed [81]", "80/a@1 80/b@2 removed []"} {
		a, err := s.Recv()
		if err != nil || says(a) != want {
			t.Fatalf("%v, %v; want %s", a, err, want)
		}
	}
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: hostURL}))
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL}))
	if a, err := s.Recv(); err != nil || says(a) != "a@1 removed []" {
		t.Errorf("%v, %v", a, err)
	}
}

// TestCoverageOfHosts: the configuration is not complete before the virtual hosts of split route configurations have arrived.
func TestCoverageOfHosts(t *testing.T) {
	p := newPlace(t)
	c := newCoverage(p.store)
	defer c.stop()
	c.splits([]string{"80"})
	if !c.open[hostURL]["80"] {
		t.Error("the virtual hosts of 80 are not awaited")
	}
	c.answered(hostURL, []string{"80/a"})
	c.splits([]string{"80"}) // a change of the head
	if len(c.open[hostURL]) > 0 {
		t.Errorf("virtual hosts are awaited: %v", c.open)
	}
}

// TestHostsOnDemandAlone: without a control plane, a sidecar with hosts on demand gets the virtual hosts that it has used, and each route configuration of a
// port, also one without any: a request for another host waits. The answer that there is no host is not kept.
func TestHostsOnDemandAlone(t *testing.T) {
	p := newPlace(t)
	p.control.Stop()
	p.keepSplit()
	p.store.Accept(routeURL, []*discoveryv3.Resource{headOf(t, "edge", "h1")}, nil)
	p.store.Accept(clusterURL, []*discoveryv3.Resource{{Name: envoy.DemandCluster, Version: "1"}}, nil)
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeURL, ResourceNamesSubscribe: []string{"80", "81", "edge"}}))
	for _, want := range []string{"80@h1 81@h1 removed [edge]", "80/a@1 80/b@2 removed []", " removed [81/__none]"} {
		a, err := s.Recv()
		if err != nil || says(a) != want {
			t.Fatalf("%v, %v; want %s", a, err, want)
		}
	}
	present, absent := existing(hostURL, []*discoveryv3.Resource{{Name: "80/no", Aliases: []string{"80/no"}}, headOf(t, "80/yes", "1")})
	if written(present) != "80/yes@1" || len(absent) != 1 || absent[0] != "80/no" {
		t.Errorf("present %s, absent %v", written(present), absent)
	}
}

// TestCoverageOfHostsOnDemand: the configuration is complete although an answer to a demand for a virtual host has not come.
func TestCoverageOfHostsOnDemand(t *testing.T) {
	p := newPlace(t)
	c := newCoverage(p.store)
	defer c.stop()
	c.asked(hostURL, []string{"80/a"}, nil)
	c.splits([]string{"81"})
	c.answered(hostURL, []string{"81/__none"})
	if len(c.open[hostURL]) > 0 {
		t.Errorf("virtual hosts are awaited: %v", c.open[hostURL])
	}
}
