package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestAddresses: Ingresses are reached at the addresses of the Service of the mesh settings, or at its other name; and without a Service, at the
// external addresses of the nodes with gateways, each once. Gateways of another cluster or namespace do not count.
func TestAddresses(t *testing.T) {
	w := meshtest.New(t)
	in := func(kind, namespace, name string) api.Key {
		return api.Key{Kind: kind, Namespace: namespace, Name: name, Cluster: w.Tables.ClusterID()}
	}
	elsewhere := func(k api.Key) api.Key { k.Cluster = "elsewhere"; return k }
	labels := mesh.LabelsOf(map[string]string{"istio": "ingressgateway", "app": "gw"})
	pod := func(node string) *kube.Pod { return &kube.Pod{Address: "10.0.0.1", Node: node, Labels: labels} }
	node := func(addresses ...string) *kube.Node { return &kube.Node{Addresses: intern.Of(addresses...)} }
	service := in(kube.KindService, "istio-system", "istio-ingressgateway")
	reached := func(addresses ...string) *kube.Service {
		return &kube.Service{Entrance: kube.Entrance{Addresses: intern.Of(addresses...)}}
	}
	for _, step := range []struct {
		name, mesh string
		values     map[api.Key]kube.Value
		want       string
	}{
		{"no Service", "ingressClass: istio", map[api.Key]kube.Value{elsewhere(service): reached("192.0.2.9")}, ""},
		{"its addresses, sorted", "ingressClass: istio", map[api.Key]kube.Value{service: reached("lb.test", "192.0.2.2", "192.0.2.1")}, "192.0.2.1 192.0.2.2 lb.test"},
		{"its other name", "ingressClass: istio", map[api.Key]kube.Value{service: &kube.Service{Type: kube.ExternalName, ExternalName: "edge.test"}}, "edge.test"},
		{"another Service", "ingressService: edge", map[api.Key]kube.Value{in(kube.KindService, "istio-system", "edge"): reached("192.0.2.7")}, "192.0.2.7"},
		{"the nodes of gateways", `ingressService: ""`, map[api.Key]kube.Value{
			in(kube.KindNode, "", "n1"): node("192.0.2.3", "192.0.2.4"), in(kube.KindNode, "", "n2"): node("192.0.2.4"), in(kube.KindNode, "", "n3"): node("192.0.2.5"),
			elsewhere(in(kube.KindNode, "", "n4")): node("192.0.2.6"),
			in(kube.KindPod, "istio-system", "g1"): pod("n1"), in(kube.KindPod, "istio-system", "g2"): pod("n2"), in(kube.KindPod, "shop", "g3"): pod("n3"),
			in(kube.KindPod, "istio-system", "g0"): pod(""), elsewhere(in(kube.KindPod, "istio-system", "g4")): pod("n4"),
			in(kube.KindPod, "istio-system", "other"): &kube.Pod{Address: "10.0.0.9", Node: "n3", Labels: mesh.LabelsOf(map[string]string{"istio": "other"})},
		}, "192.0.2.3 192.0.2.4"},
		{"a gateway goes", `ingressService: ""`, map[api.Key]kube.Value{in(kube.KindPod, "istio-system", "g1"): nil}, "192.0.2.4"},
	} {
		w.Configure(step.mesh)
		w.Observe(step.values)
		if got := strings.Join(w.Queries.Gateways.Addresses(w.Graph.Naive()).Items(), " "); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// TestCounting: the Ingresses of an API server whose status is written are the ones that count, of whatever class. Ingresses of files have no status.
func TestCounting(t *testing.T) {
	w := meshtest.New(t)
	list := func() string {
		var names []string
		for _, m := range w.Queries.Gateways.Counting(w.Graph.Naive()) {
			for k := range m.All() {
				names = append(names, k.Key.Name)
			}
		}
		return strings.Join(names, " ")
	}
	put := func(name, class string, generation int64) {
		o := meshtest.Parse(t, fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %s, namespace: shop, annotations: {kubernetes.io/ingress.class: %s}}
spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}
`, name, class))[0]
		o.Position.Generation = generation
		w.Put(o)
	}
	put("ours", "istio", 1)
	put("theirs", "nginx", 1)
	put("file", "istio", 0)
	if got := list(); got != "ours" {
		t.Errorf("got %q", got)
	}
	w.Configure("ingressClass: nginx")
	if got := list(); got != "theirs" {
		t.Errorf("with another class: got %q", got)
	}
	w.Delete(api.Key{Kind: ingress.Kind, Namespace: "shop", Name: "theirs"})
	if got := list(); got != "" {
		t.Errorf("after it went: got %q", got)
	}
}
