package mcp_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/mcp"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// seen are the resources of a view.
type seen struct {
	t   *testing.T
	all omap.Map[omap.Name, *resource.Resource]
}

func watch(t *testing.T, w *meshtest.World, v mcp.View) *seen {
	s := &seen{t: t}
	t.Cleanup(w.Queries.Configuration.Resources.Observe(v, func(all omap.Map[omap.Name, *resource.Resource]) { s.all = all }))
	for w.Graph.Slice(1000) {
	}
	return s
}

func (s *seen) names() (list []string) {
	for name := range s.all.All() {
		list = append(list, string(name))
	}
	return list
}

func (s *seen) object(name string) *mcpv1.Resource {
	s.t.Helper()
	r, ok := s.all.Get(omap.Name(name))
	if !ok {
		s.t.Fatalf("there is no %s among %v", name, s.names())
	}
	m, err := r.Proto()
	if err != nil {
		s.t.Fatal(err)
	}
	return m.(*mcpv1.Resource)
}

const reviews = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop, creationTimestamp: "2026-01-02T03:04:05Z", labels: {a: b}}
spec: {hosts: [reviews.test], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 192.0.2.1}]}
`

// TestObject: an object is served with all that its author wrote, and each kind by its own type.
func TestObject(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "here"})
	w.Apply(reviews)
	s := watch(t, w, mcp.View{Kind: api.KindServiceEntry})
	one := s.object("shop/reviews")
	m := one.Metadata
	if m.Name != "shop/reviews" || m.Labels["a"] != "b" || m.CreateTime.AsTime().Format("2006-01-02T15:04:05Z") != "2026-01-02T03:04:05Z" || m.Annotations[api.ServedThrough] == "" {
		t.Errorf("metadata: %v", m)
	}
	spec := &networking.ServiceEntry{}
	if err := one.Body.UnmarshalTo(spec); err != nil || spec.Hosts[0] != "reviews.test" {
		t.Errorf("%v, %v", spec, err)
	}
	if others := watch(t, w, mcp.View{Kind: api.KindVirtualService}); others.all.Len() != 0 {
		t.Errorf("VirtualServices: %v", others.names())
	}
	w.Delete(api.Key{Kind: api.KindServiceEntry, Namespace: "shop", Name: "reviews"})
	if s.all.Len() != 0 {
		t.Errorf("it was deleted, and %v is served", s.names())
	}
}

// TestTypes: all served versions of a kind are its type, and nothing else is.
func TestTypes(t *testing.T) {
	for url, want := range map[string]string{
		"networking.istio.io/v1/ServiceEntry": "ServiceEntry", "networking.istio.io/v1alpha3/ServiceEntry": "ServiceEntry", "networking.istio.io/v1beta1/Sidecar": "Sidecar",
		"security.istio.io/v1/AuthorizationPolicy": "AuthorizationPolicy", "telemetry.istio.io/v1alpha1/Telemetry": "Telemetry",
		"networking.istio.io/v1alpha3/EnvoyFilter": "EnvoyFilter", "networking.istio.io/v1/EnvoyFilter": "", "networking.istio.io/v2/ServiceEntry": "",
		"security.istio.io/v1/ServiceEntry": "", "ServiceEntry": "", "": "", "networking.k8s.io/v1/Ingress": "", resource.Cluster.URL(): "", "core/v1alpha1/MeshConfig": "",
	} {
		if got := mcp.KindOf(url); got != want {
			t.Errorf("%q is %q, want %q", url, got, want)
		}
	}
}

// TestEcho: an object is served to readers through whose control plane it did not come.
func TestEcho(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "here"})
	w.Apply(reviews)
	far := *meshtest.Parse(t, reviews)[0]
	far.Name, far.Annotations = "far", map[string]string{api.ServedThrough: "east,north"}
	sealed, err := far.Seal()
	if err != nil {
		t.Fatal(err)
	}
	w.Put(sealed)
	for reader, want := range map[string]string{"": "[shop/reviews]", "east": "[shop/reviews]", "north": "[shop/reviews]", "south": "[shop/far shop/reviews]", "nor": "[shop/far shop/reviews]"} {
		s := watch(t, w, mcp.View{Kind: api.KindServiceEntry, Reader: reader})
		if got := fmt.Sprint(s.names()); got != want {
			t.Errorf("%q sees %s, want %s", reader, got, want)
		}
		if reader == "south" {
			if through := s.object("shop/far").Metadata.Annotations[api.ServedThrough]; through != "east,north,"+w.Tables.ClusterID() {
				t.Errorf("it came through %q", through)
			}
		}
	}
}

func registered(of string, order int, host string, ports []mesh.Port, endpoints ...mesh.Endpoint) map[api.Key]kube.Value {
	return map[api.Key]kube.Value{registry.ServiceKey(of, "default", host): &registry.Service{
		Order: order, Named: host, ExportTo: []string{"*"}, Scale: uint32(1 + 9*order),
		Spec: &mesh.Service{Name: host, Namespace: "default", Ports: ports, Resolution: mesh.Static}, Endpoints: endpoints,
	}}
}

// TestRegistered: a service of registries is one ServiceEntry with the endpoints of all that have it, weights in one unit. Endpoints that serve other ports
// are in an entry of their own, and endpoints that take no requests in none.
func TestRegistered(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "here"})
	http, admin := mesh.Port{Number: 80, Name: "http-80", Protocol: mesh.HTTP}, mesh.Port{Number: 81, Name: "tcp-81", Protocol: mesh.TCP}
	end := func(address string, weight uint32, ports map[string]uint32) mesh.Endpoint {
		return mesh.Endpoint{Address: address, Weight: weight, OnlyPorts: true, Ports: ports, Labels: mesh.LabelsOf(map[string]string{"v": "1"})}
	}
	down := end("192.0.2.9", 1, map[string]uint32{"http-80": 80})
	down.Health = mesh.Unusable
	w.Observe(registered("west", 0, "web.service.consul", []mesh.Port{http, admin}, end("192.0.2.1", 2, map[string]uint32{"http-80": 8080, "tcp-81": 81}), end("192.0.2.2", 1, map[string]uint32{"tcp-81": 8081}), down))
	w.Observe(registered("east", 1, "web.service.consul", []mesh.Port{http, admin}, end("192.0.2.3", 5, map[string]uint32{"http-80": 80, "tcp-81": 81})))
	s := watch(t, w, mcp.View{Kind: api.KindServiceEntry})
	if got := fmt.Sprint(s.names()); got != "[default/web-service-consul default/web-service-consul.81]" {
		t.Fatal(got)
	}
	spec := func(name string) string {
		e := &networking.ServiceEntry{}
		if err := s.object(name).Body.UnmarshalTo(e); err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, one := range e.Endpoints {
			text += fmt.Sprintf("%s %d %v; ", one.Address, one.Weight, slices.Sorted(maps.Values(one.Ports)))
		}
		return fmt.Sprint(e.Hosts, " ", len(e.Ports), " ", text)
	}
	if got, want := spec("default/web-service-consul"), "[web.service.consul] 2 192.0.2.1 20 [81 8080]; 192.0.2.3 5 [80 81]; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := spec("default/web-service-consul.81"), "[web.service.consul] 1 192.0.2.2 10 [8081]; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.Observe(map[api.Key]kube.Value{registry.ServiceKey("west", "default", "web.service.consul"): nil})
	if got := spec("default/web-service-consul"); got != "[web.service.consul] 2 192.0.2.3 5 [80 81]; " {
		t.Errorf("without the first registry: %s", got)
	}
}

// TestServedEntriesAreValid: the entry of a service of a registry passes the checks of a ServiceEntry.
func TestServedEntriesAreValid(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "here"})
	for i, p := range []mesh.Protocol{mesh.HTTP, mesh.HTTP2, mesh.GRPC, mesh.HTTPS, mesh.TCP, mesh.Mongo, mesh.Dubbo} {
		w.Observe(registered("west", 0, fmt.Sprintf("web%d.service.consul", i), []mesh.Port{{Number: 80, Name: "p-80", Protocol: p}}, mesh.Endpoint{Address: "2001:db8::1", Weight: 1, Place: mesh.Place{Locality: mesh.ParseLocality("r/z")}}))
	}
	s := watch(t, w, mcp.View{Kind: api.KindServiceEntry})
	if s.all.Len() != 7 {
		t.Errorf("served: %v", s.names())
	}
	for name := range s.all.All() {
		e := &networking.ServiceEntry{}
		if err := s.object(string(name)).Body.UnmarshalTo(e); err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		docs := api.Decode("", fmt.Appendf(nil, `{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "a"}, "spec": %s}`, text))
		docs[0].Check()
		if docs[0].Object == nil {
			t.Errorf("%s: %v", name, docs[0].Problems)
		}
	}
}

// TestCost: an edit costs the cells of its object, however many there are, for each reader's view; and nothing without readers.
func TestCost(t *testing.T) {
	costs := map[int]string{}
	for _, n := range []int{20, 200} {
		w, l := meshtest.NewWith(t, meshtest.Options{ClusterID: "here"}), meshtest.Large{}
		for i := range n {
			w.Put(l.ServiceEntry(i, 1))
		}
		for _, cell := range []string{"served", "served.visible", "served.all", "served.view"} {
			if c := w.Graph.Cost()[cell]; c != 0 {
				t.Errorf("without readers, %s runs %d times", cell, c)
			}
		}
		watch(t, w, mcp.View{Kind: api.KindServiceEntry, Reader: "a"})
		watch(t, w, mcp.View{Kind: api.KindServiceEntry, Reader: "b"})
		watch(t, w, mcp.View{Kind: api.KindVirtualService, Reader: "b"})
		w.Put(l.ServiceEntry(7, 9))
		c := w.Graph.Cost()
		costs[n] = fmt.Sprint(c["served"], c["served.visible"], c["served.all"], c["served.entries"], c["served.view"])
	}
	if costs[20] != costs[200] || costs[20] != "1 2 2 0 2" {
		t.Errorf("cells of an edit: %v", costs)
	}
}
