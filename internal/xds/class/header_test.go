package class_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// measuring is a MeshConfig with metrics of requests, and elsewhere the metadata of a proxy whose certificates come from another authority.
const (
	measuring = "defaultProviders: {metrics: [prometheus]}"
	elsewhere = `{"WORKLOAD_CERTIFICATES": "other-authority"}`
)

// namingServices are services for each kind of cluster: with mutual TLS of the mesh, without, and outside of the mesh.
const namingServices = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: cart, namespace: shop}
spec:
  hosts: [cart.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 82, name: tcp, protocol: TCP}, {number: 83, name: any}]
  endpoints: [{address: 10.77.1.1, labels: {security.istio.io/tlsMode: istio}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: shop}
spec:
  hosts: [own.shop.svc.cluster.local]
  exportTo: ["."]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.77.1.2, labels: {security.istio.io/tlsMode: istio}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: plain, namespace: shop}
spec:
  hosts: [plain.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.77.1.3}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: [mutual.com, simple.com, none.com]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.77.1.4, labels: {security.istio.io/tlsMode: istio}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: mutual, namespace: shop}
spec: {host: mutual.com, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: simple, namespace: shop}
spec: {host: simple.com, trafficPolicy: {tls: {mode: SIMPLE}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: few, namespace: few}
spec: {egress: [{hosts: ["shop/cart.shop.svc.cluster.local"]}]}
`

// TestNamesWorkload: requests of proxies whose certificates come from another authority name their workload, to services of the mesh with mutual TLS and
// HTTP only. The endpoints stay the same ones, which all proxies share.
func TestNamesWorkload(t *testing.T) {
	w := meshtest.New(t)
	w.Configure(measuring)
	w.Load(namingServices)
	for name, want := range map[string][]string{
		"sidecar~10.1.1.1~web-0.shop~shop.svc.cluster.local":   {"outbound|80||cart.shop.svc.cluster.local", "outbound|80||own.shop.svc.cluster.local", "outbound|83||cart.shop.svc.cluster.local"},
		"sidecar~10.1.1.2~web-0.other~other.svc.cluster.local": {"outbound|80||cart.shop.svc.cluster.local", "outbound|83||cart.shop.svc.cluster.local"},
		"sidecar~10.1.1.3~web-0.few~few.svc.cluster.local":     {"outbound|80||cart.shop.svc.cluster.local", "outbound|83||cart.shop.svc.cluster.local"},
		"router~10.1.1.4~web-0.other~other.svc.cluster.local":  {"outbound|80||cart.shop.svc.cluster.local", "outbound|83||cart.shop.svc.cluster.local"},
	} {
		own := w.State(w.Connect(meshtest.Node(t, name, "{}")))
		other := w.State(w.Connect(meshtest.Node(t, strings.Replace(name, "web-0", "web-1", 1), elsewhere)))
		meshtest.Validate(t, other)
		var got []string
		for r := range own.Types[resource.Cluster].All() {
			if strings.Contains(meshtest.YAML(t, r), "PROXY_PEER_METADATA") {
				t.Errorf("%s: cluster %s of a proxy with certificates of the control plane has the header", name, r.Name())
			}
		}
		for r := range other.Types[resource.Cluster].All() {
			if strings.Contains(meshtest.YAML(t, r), "%ENVIRONMENT(PROXY_PEER_METADATA)%") {
				got = append(got, r.Name())
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: the header is in %q, want %q", name, got, want)
		}
		for typ := range resource.Type(resource.Types) {
			for d := range resource.Diff(own.Layers(typ), other.Layers(typ)) {
				if typ != resource.Cluster {
					t.Errorf("%s: %s %s differs", name, typ, d.Name)
				}
			}
		}
	}
	w.Check()
}

// TestNamingCostsNothing: while metrics are off, or as long as all certificates come from the control plane, no cell runs for the header, and the
// proxies of a class stay in it.
func TestNamingCostsNothing(t *testing.T) {
	connect := func(w *meshtest.World, pod, metadata string) proxy.Class {
		return w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~"+pod+".shop~shop.svc.cluster.local", metadata))
	}
	off := meshtest.New(t)
	off.Load(namingServices)
	if a, b := connect(off, "web-0", "{}"), connect(off, "web-1", elsewhere); a != b {
		t.Errorf("metrics are off, and the classes differ: %+v and %+v", a, b)
	}
	on := meshtest.New(t)
	on.Configure(measuring)
	on.Load(namingServices)
	on.State(connect(on, "web-0", "{}"))
	if cost := on.Graph.Cost(); cost["ownClusters"]+cost["ownClusters.sites"]+cost["ownClusters.sets"] > 0 {
		t.Errorf("cells ran for proxies with certificates of the control plane: %v", cost)
	}
	on.State(connect(on, "web-1", elsewhere))
	if cost := on.Graph.Cost(); cost["ownClusters"] == 0 || cost["clusters"]+cost["endpoints"]+cost["ownEndpoints"] > 0 {
		t.Errorf("cells other than those with the header ran for a proxy with other certificates: %v", cost)
	}
}
