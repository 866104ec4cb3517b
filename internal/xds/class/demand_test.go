package class_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// demanding is a sidecar with hosts on demand.
func demanding(t meshtest.T, namespace string) *proxy.Proxy {
	p := *meshtest.Node(t, fmt.Sprintf("sidecar~10.1.0.1~w-0.%[1]s~%[1]s.svc.cluster.local", namespace), "")
	p.HostsOnDemand = true
	return &p
}

const demandedMesh = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.svc.cluster.local]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}]
  resolution: STATIC
  addresses: [10.9.0.1]
  endpoints: [{address: 10.2.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild, namespace: shop}
spec:
  hosts: ["*.wild.com", one.wild.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.2.0.1}]
`

// TestDemandedHosts: an authority has the virtual host that takes its requests in the whole route configuration, for this authority alone.
func TestDemandedHosts(t *testing.T) {
	w := meshtest.New(t)
	w.Apply(demandedMesh)
	c := w.Connect(demanding(t, "shop"))
	for authority, want := range map[string]string{
		"web.shop.svc.cluster.local": "web.shop.svc.cluster.local", "web.shop.svc.cluster.local:80": "web.shop.svc.cluster.local", "web.shop": "web.shop.svc.cluster.local",
		"web": "web.shop.svc.cluster.local", "web:8080": "web.shop.svc.cluster.local", "one.wild.com": "one.wild.com", "two.wild.com": "*.wild.com", "a.b.wild.com:1": "*.wild.com",
		"wild.com": "", "other": "", "": "-", "[::1]:80": "", "a:b:c": "",
	} {
		a := w.Queries.Demanded(w.Graph.Naive(), c, "80", authority)
		if (a.Resource == nil) != (want == "-") {
			t.Errorf("%q: %v", authority, a)
		}
		if a.Resource == nil {
			continue
		}
		m, err := a.Resource.Proto()
		if err != nil {
			t.Fatal(err)
		}
		host := m.(*routev3.VirtualHost)
		cluster := host.GetRoutes()[0].GetRoute().GetCluster()
		if want == "" && cluster != "PassthroughCluster" || want != "" && cluster != "outbound|80||"+want {
			t.Errorf("%q is sent to %q, want %q", authority, cluster, want)
		}
		if host.Name != "80/"+authority || !slices.Equal(host.Domains, []string{authority}) || a.Resource.Name() != host.Name || !slices.Equal(a.Resource.Clusters(), []string{cluster}) {
			t.Errorf("%q: the virtual host %q has the domains %q and the clusters %q", authority, host.Name, host.Domains, a.Resource.Clusters())
		}
	}
	if a := w.Queries.Demanded(w.Graph.Naive(), c, "81", "web"); a.Resource != nil {
		t.Errorf("a port that no service has: %v", a)
	}
	w.Apply(`
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: more, namespace: shop}
spec:
  configPatches:
  - {applyTo: VIRTUAL_HOST, match: {routeConfiguration: {name: '80'}}, patch: {operation: ADD, value: {name: more, domains: [more.test], routes: [{match: {prefix: /}, route: {cluster: c}}]}}}
`)
	c = w.Follow("sidecar~10.1.0.1~w-0.shop~shop.svc.cluster.local")
	if a := w.Queries.Demanded(w.Graph.Naive(), c, "80", "more.test:80"); a.Resource == nil || !slices.Equal(a.Resource.Clusters(), []string{"c"}) {
		t.Errorf("a virtual host that a patch adds: %v", a)
	}
}

// TestFirstClusters: at first there are the clusters that belong to no service, and what listeners send to.
func TestFirstClusters(t *testing.T) {
	w := meshtest.New(t)
	w.Apply(demandedMesh)
	c := w.Connect(demanding(t, "shop"))
	var names []string
	for n := range w.State(c).First.All() {
		names = append(names, string(n))
	}
	want := "BlackHoleCluster InboundPassthroughCluster PassthroughCluster hosts-on-demand outbound|90||web.shop.svc.cluster.local"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the first clusters are\n %s; want\n %s", got, want)
	}
	of := w.Connect(meshtest.Node(t, "sidecar~10.1.0.2~w-1.shop~shop.svc.cluster.local", ""))
	if n := w.State(of).First.Len(); n > 0 {
		t.Errorf("a sidecar with all hosts has %d first clusters", n)
	}
	if s, r := w.State(of), w.State(c); !s.Types[resource.Route].Same(r.Types[resource.Route]) {
		t.Error("the two do not share their route configurations")
	}
}

// TestDemandCost: other services run as many cells for a sidecar with hosts on demand in a small mesh as in a large one.
func TestDemandCost(t *testing.T) {
	costs := func(services int) map[string]map[string]int {
		w, l := meshtest.New(t), meshtest.Large{Services: services}
		w.Put(l.Objects()...)
		c := w.Connect(demanding(t, "ns-04"))
		w.State(c)
		out := map[string]map[string]int{}
		w.Graph.Cost()
		w.Apply(demandedMesh)
		out["services"] = maps.Clone(w.Graph.Cost())
		return out
	}
	few, many := costs(100), costs(400)
	for name, got := range many {
		if !maps.Equal(few[name], got) {
			t.Errorf("%s: in a small mesh %v, in a large one %v", name, few[name], got)
		}
	}
}
