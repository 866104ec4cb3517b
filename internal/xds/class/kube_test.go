package class_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// testCluster is the cluster of the objects in these tests.
const testCluster = "west"

type values = map[api.Key]kube.Value

func inShop(kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: "shop", Name: name, Cluster: testCluster}
}

func nodeKey(name string) api.Key {
	return api.Key{Kind: kube.KindNode, Name: name, Cluster: testCluster}
}

func shopService(typ kube.ServiceType) *kube.Service {
	s := &kube.Service{
		Created: 1, Type: typ, Selector: mesh.LabelsOf(map[string]string{"app": "a"}),
		Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP, TargetName: "web"}, {Name: "tcp", Number: 90, Protocol: mesh.TCP, Target: 9090}},
	}
	if typ == kube.ClusterIP {
		s.Addresses = []string{"10.96.0.1"}
	}
	return s
}

func shopPod(address, account string) *kube.Pod {
	return &kube.Pod{
		Address: address, Node: "n1", ServiceAccount: account,
		Labels: mesh.LabelsOf(map[string]string{"app": "a", "security.istio.io/tlsMode": "istio"}),
		Ports:  intern.Of(kube.NamedPort{Name: "web", Number: 8080}),
	}
}

func shopSlice(endpoints ...kube.SliceEndpoint) *kube.Slice {
	return &kube.Slice{
		Service: "a", Controlled: true, Endpoints: endpoints,
		Ports: intern.Of(kube.SlicePort{Name: "http", Number: 8080}, kube.SlicePort{Name: "tcp", Number: 9090}),
	}
}

// shop is a Service with two pods, one of them not ready.
func shop() values {
	return values{
		nodeKey("n1"):                 &kube.Node{Locality: mesh.Locality{Region: "r1", Zone: "z1"}},
		inShop(kube.KindService, "a"): shopService(kube.ClusterIP),
		inShop(kube.KindPod, "a-1"):   shopPod("10.10.0.1", "one"),
		inShop(kube.KindPod, "a-2"):   shopPod("10.10.0.2", "one"),
		inShop(kube.KindEndpointSlice, "a-x1"): shopSlice(kube.SliceEndpoint{Address: "10.10.0.1", Pod: "a-1"},
			kube.SliceEndpoint{Address: "10.10.0.2", Pod: "a-2", Health: kube.NotReady}),
	}
}

// kubeChanges are changes of a Service, its slices and pods, one after the other.
func kubeChanges() []change {
	step := func(name string, v values) change {
		return change{name, func(w *meshtest.World, _ meshtest.Large) { w.Observe(v) }}
	}
	unready, moved, other := shopPod("10.10.0.1", "one"), *shopPod("10.10.0.1", "one"), shopPod("10.10.0.3", "two")
	unready.NotReady = true
	moved.Node = "n2"
	slice := inShop(kube.KindEndpointSlice, "a-x1")
	tls := shopService(kube.Headless)
	tls.Ports = append(tls.Ports, kube.ServicePort{Name: "https", Number: 443, Protocol: mesh.HTTPS, Target: 8443})
	tlsSlice := shopSlice(kube.SliceEndpoint{Address: "10.10.0.1", Pod: "a-1"}, kube.SliceEndpoint{Address: "10.10.0.2", Pod: "a-2", Health: kube.NotReady})
	tlsSlice.Ports = intern.Of(append(tlsSlice.Ports.Items(), kube.SlicePort{Name: "https", Number: 8443})...)
	return []change{
		step("a service", shop()),
		step("the same again", shop()),
		step("a pod becomes ready", values{slice: shopSlice(kube.SliceEndpoint{Address: "10.10.0.1", Pod: "a-1"}, kube.SliceEndpoint{Address: "10.10.0.2", Pod: "a-2"})}),
		step("a status that no ServiceEntry asks for", values{inShop(kube.KindPod, "a-1"): unready}),
		step("an endpoint comes before its pod", values{inShop(kube.KindEndpointSlice, "a-x2"): shopSlice(kube.SliceEndpoint{Address: "10.10.0.3", Pod: "a-3"})}),
		step("the pod of another service account comes", values{inShop(kube.KindPod, "a-3"): other}),
		step("an endpoint in two slices", values{inShop(kube.KindEndpointSlice, "a-x3"): shopSlice(kube.SliceEndpoint{Address: "10.10.0.3", Pod: "a-3"})}),
		step("a pod ends", values{slice: shopSlice(kube.SliceEndpoint{Address: "10.10.0.1", Pod: "a-1"}, kube.SliceEndpoint{Address: "10.10.0.2", Pod: "a-2", Health: kube.Ending})}),
		step("a node without locality", values{inShop(kube.KindPod, "a-1"): &moved}),
		step("the node gets a locality", values{nodeKey("n2"): &kube.Node{Locality: mesh.Locality{Region: "r2"}}}),
		step("an ExternalName service gives it another name, and a second one gives that another one", values{
			inShop(kube.KindService, "b"): &kube.Service{Type: kube.ExternalName, ExternalName: "a.shop.svc.cluster.local"},
			inShop(kube.KindService, "c"): &kube.Service{Type: kube.ExternalName, ExternalName: "b.shop.svc.cluster.local"},
		}),
		step("the service becomes headless", values{inShop(kube.KindService, "a"): shopService(kube.Headless)}),
		step("it has a port for TLS", values{inShop(kube.KindService, "a"): tls, slice: tlsSlice}),
		step("the service goes", values{inShop(kube.KindService, "a"): nil}),
	}
}

// TestCostOfKubernetes: a change of a pod or slice costs the same in every mesh, and one that shows nowhere costs nothing.
func TestCostOfKubernetes(t *testing.T) {
	same(t, "testdata/cost-kube.txt", kubeChanges(), func(meshtest.Large) []*api.Object { return nil })
}

// TestKubernetes shows the endpoints of a Service, and the ports of the proxy of its pod, after each of the changes.
func TestKubernetes(t *testing.T) {
	w := meshtest.New(t)
	const id = "sidecar~10.10.0.1~a-1.shop~shop.svc.cluster.local"
	w.Connect(meshtest.Node(t, id, `{"CLUSTER_ID": "west"}`))
	var out strings.Builder
	for _, c := range kubeChanges() {
		c.do(w, meshtest.Large{})
		class := w.Follow(id)
		w.Check()
		fmt.Fprintf(&out, "-- %s --\n", c.name)
		for p := range class.Inbound.All() {
			fmt.Fprintf(&out, "serves %d (%v) for %s\n", p.Number, p.Protocol, p.Host)
		}
		for line := range assignments(t, w.State(class)) {
			out.WriteString(line)
		}
		for line := range domains(t, w.State(class)) {
			out.WriteString(line)
		}
		for _, typ := range []resource.Type{resource.Cluster, resource.Listener} {
			for _, name := range slices.Sorted(maps.Keys(names(w.State(class), typ))) {
				fmt.Fprintln(&out, typ, name)
			}
		}
	}
	golden(t, "testdata/kube.txt", out.String())
}

func names(s *resource.State, typ resource.Type) map[string]bool {
	all := map[string]bool{}
	for r := range s.Layers(typ).All() {
		all[r.Name()] = true
	}
	return all
}

// domains yields a line for each virtual host in the routes of port 80.
func domains(t *testing.T, s *resource.State) iter.Seq[string] {
	return func(yield func(string) bool) {
		r, ok := s.Get(resource.Route, "80")
		if !ok {
			return
		}
		m, err := r.Proto()
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range m.(*routev3.RouteConfiguration).VirtualHosts {
			if !yield(fmt.Sprintf("%s: %s\n", host.Name, strings.Join(host.Domains, " "))) {
				return
			}
		}
	}
}

// assignments yields a line for each endpoint in a state.
func assignments(t *testing.T, s *resource.State) iter.Seq[string] {
	return func(yield func(string) bool) {
		for r := range s.Layers(resource.Endpoint).All() {
			m, err := r.Proto()
			if err != nil {
				t.Fatal(err)
			}
			a := m.(*endpointv3.ClusterLoadAssignment)
			for _, group := range a.Endpoints {
				for _, e := range group.LbEndpoints {
					at := e.GetEndpoint().GetAddress().GetSocketAddress()
					line := fmt.Sprintf("%s: %s:%d in %s/%s, %v, mesh TLS %t\n", a.ClusterName, at.Address, at.GetPortValue(),
						group.Locality.GetRegion(), group.Locality.GetZone(), e.HealthStatus, e.Metadata != nil)
					if !yield(line) {
						return
					}
				}
			}
		}
	}
}
