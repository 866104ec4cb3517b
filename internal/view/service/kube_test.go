package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// values are objects of Kubernetes clusters.
type values = map[api.Key]kube.Value

// in names an object in the namespace shop of a cluster.
func in(cluster, kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: "shop", Name: name, Cluster: cluster}
}

var appA = mesh.LabelsOf(map[string]string{"app": "a"})

// selecting is a Service with one port that selects the pods of the app "a".
func selecting(port kube.ServicePort) *kube.Service {
	port.Protocol = mesh.TCP
	return &kube.Service{Selector: appA, Ports: []kube.ServicePort{port}}
}

// workloadCase is a workload among objects of a cluster, and the instances that it is expected to serve.
type workloadCase struct {
	name   string
	of     service.Workload
	values values
	want   string
}

func workloadCases() []workloadCase {
	pod := &kube.Pod{
		Address: "10.10.0.1", MoreAddresses: intern.Of("fd00::1"), Labels: appA,
		Ports: intern.Of(kube.NamedPort{Name: "web", Number: 5353, UDP: true}, kube.NamedPort{Name: "web", Number: 8080}),
	}
	manual := func(address string) *kube.Slice {
		return &kube.Slice{
			Service:   "manual",
			Endpoints: []kube.SliceEndpoint{{Address: address}}, Ports: intern.Of(kube.SlicePort{Number: 7000}),
		}
	}
	withoutSelector := &kube.Service{Ports: []kube.ServicePort{{Number: 70, Protocol: mesh.TCP}}}
	a1 := service.Workload{Cluster: "west", Namespace: "shop", Name: "a-1", Addresses: intern.Of("10.10.0.1"), Labels: appA}
	renamed := a1
	renamed.Name = "renamed"
	return []workloadCase{
		{"services of its cluster", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "x"): selecting(kube.ServicePort{Number: 80}),
			in("east", kube.KindService, "y"): selecting(kube.ServicePort{Number: 81}),
		}, "pod: x on 80"},
		{"a named port has a protocol", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "x"): selecting(kube.ServicePort{Number: 80, TargetName: "web"}),
		}, "pod: x on 8080"},
		{"a service without a selector", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "manual"): withoutSelector,
			in("west", kube.KindEndpointSlice, "m"): manual("10.10.0.1"),
		}, "pod: manual on 7000"},
		{"the same at its second address", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "manual"): withoutSelector,
			in("west", kube.KindEndpointSlice, "m"): manual("fd00::1"),
		}, "pod: manual on 7000"},
		{"the same in another cluster", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("east", kube.KindService, "manual"): withoutSelector,
			in("east", kube.KindEndpointSlice, "m"): manual("10.10.0.1"),
		}, "pod:"},
		{"found by its address", renamed, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "x"): selecting(kube.ServicePort{Number: 80}),
		}, "pod: x on 80"},
		{"another namespace at its address", renamed, values{
			{Kind: kube.KindPod, Namespace: "other", Name: "b", Cluster: "west"}: pod,
		}, "unknown:"},
		{"the labels that its proxy reports", a1, values{
			in("west", kube.KindService, "x"): selecting(kube.ServicePort{Number: 80}),
			in("east", kube.KindService, "y"): selecting(kube.ServicePort{Number: 81}),
		}, "unknown: x on 80"},
	}
}

// namingCases have slices that refer to a pod at an address that it does not have, and ports that a pod cannot serve.
func namingCases() []workloadCase {
	pod := &kube.Pod{Address: "10.10.0.1", Labels: appA}
	naming := func(pod string, controlled bool) *kube.Slice {
		return &kube.Slice{
			Service: "manual", Controlled: controlled,
			Endpoints: []kube.SliceEndpoint{{Address: "192.0.2.1", Pod: pod}}, Ports: intern.Of(kube.SlicePort{Number: 7000}),
		}
	}
	withoutSelector := &kube.Service{Ports: []kube.ServicePort{{Number: 70, Protocol: mesh.TCP}}}
	a1 := service.Workload{Cluster: "west", Namespace: "shop", Name: "a-1", Addresses: intern.Of("10.10.0.1"), Labels: appA}
	return []workloadCase{
		{"a slice that refers to it at another address", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "manual"): withoutSelector,
			in("west", kube.KindEndpointSlice, "m"): naming("a-1", false),
		}, "pod: manual on 7000"},
		{"the same, with the label of the controller", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "manual"): withoutSelector,
			in("west", kube.KindEndpointSlice, "m"): naming("a-1", true),
		}, "pod: manual on 7000"},
		{"the same, before the address of the pod is known", a1, values{
			in("west", kube.KindPod, "a-1"): &kube.Pod{Labels: appA}, in("west", kube.KindService, "manual"): withoutSelector,
			in("west", kube.KindEndpointSlice, "m"): naming("a-1", true),
		}, "pod: manual on 7000"},
		{"one that refers to another pod", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "manual"): withoutSelector,
			in("west", kube.KindPod, "a-2"):         &kube.Pod{Address: "10.10.0.2"},
			in("west", kube.KindEndpointSlice, "m"): naming("a-2", true),
		}, "pod:"},
		{"one that refers to a pod of this name in another namespace", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "manual"): withoutSelector,
			in("west", kube.KindEndpointSlice, "m"): naming("other/a-1", false),
		}, "pod:"},
		{"a hand-made slice of a service that selects others", a1, values{
			in("west", kube.KindPod, "a-1"):         pod,
			in("west", kube.KindService, "manual"):  &kube.Service{Selector: mesh.LabelsOf(map[string]string{"app": "b"}), Ports: withoutSelector.Ports},
			in("west", kube.KindEndpointSlice, "m"): naming("a-1", false),
		}, "pod: manual on 7000"},
		{"not the ports of the proxy", a1, values{
			in("west", kube.KindPod, "a-1"): pod, in("west", kube.KindService, "x"): &kube.Service{Selector: appA, Ports: []kube.ServicePort{
				{Number: 1, Target: 15000}, {Number: 2, Target: 15001}, {Number: 3, Target: 15004}, {Number: 4, Target: 15006}, {Number: 5, Target: 15008},
				{Number: 6, Target: 15020}, {Number: 7, Target: 15021}, {Number: 8, Target: 15053}, {Number: 9, Target: 15090},
				{Number: 15001, Target: 8080}, {Number: 10, Target: 15022}, {Number: 11, Target: 15443},
			}},
		}, "pod: x on 8080 x on 15022 x on 15443"},
	}
}

// TestWorkloadOfPod checks which services a pod serves. Each Service here has its port number as the port of the pod, unless the
// pod names the port.
func TestWorkloadOfPod(t *testing.T) {
	for _, c := range append(workloadCases(), namingCases()...) {
		t.Run(c.name, func(t *testing.T) {
			w := meshtest.New(t)
			w.Observe(c.values)
			d, _ := w.Queries.Services.Workload.Get(w.Graph.Naive(), c.of)
			got := "unknown:"
			if d.HasEndpoint {
				got = "pod:"
			}
			for p := range d.Ports.All() {
				got += fmt.Sprintf(" %s on %d", p.Name, p.Number)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestEndpointsOfPods checks which endpoints a service has, and whose labels they take.
func TestEndpointsOfPods(t *testing.T) {
	const host = "a.shop.svc.cluster.local"
	pod := func(change func(p *kube.Pod)) *kube.Pod {
		p := &kube.Pod{Address: "10.10.0.1", Labels: mesh.LabelsOf(map[string]string{"app": "a", "v": "1"})}
		change(p)
		return p
	}
	a := selecting(kube.ServicePort{Number: 80})
	slice := func(endpoints ...kube.SliceEndpoint) *kube.Slice {
		return &kube.Slice{Service: "a", Endpoints: endpoints}
	}
	for _, c := range []struct {
		name   string
		values values
		want   string
	}{
		{"a pod with the address of the endpoint", values{
			in("west", kube.KindService, "a"): a, in("west", kube.KindPod, "p"): pod(func(*kube.Pod) {}),
			in("west", kube.KindEndpointSlice, "s"): slice(kube.SliceEndpoint{Address: "10.10.0.1"}),
		}, "10.10.0.1 app=a v=1"},
		{"the network of its node", values{
			in("west", kube.KindService, "a"): a, in("west", kube.KindPod, "p"): pod(func(p *kube.Pod) { p.HostNetwork = true }),
			in("west", kube.KindEndpointSlice, "s"): slice(kube.SliceEndpoint{Address: "10.10.0.1"}),
		}, "10.10.0.1"},
		{"a pod of another cluster", values{
			in("west", kube.KindService, "a"): a, in("east", kube.KindPod, "p"): pod(func(*kube.Pod) {}),
			in("west", kube.KindEndpointSlice, "s"): slice(kube.SliceEndpoint{Address: "10.10.0.1"}),
		}, "10.10.0.1"},
		{"one address twice in a slice", values{
			in("west", kube.KindService, "a"): a,
			in("west", kube.KindEndpointSlice, "s"): slice(kube.SliceEndpoint{Address: "10.10.0.1"},
				kube.SliceEndpoint{Address: "10.10.0.1", Health: kube.NotReady}),
		}, "10.10.0.1"},
		{"an address of the other pod", values{
			in("west", kube.KindService, "a"): a, in("west", kube.KindPod, "p"): pod(func(*kube.Pod) {}),
			in("west", kube.KindEndpointSlice, "s"): slice(kube.SliceEndpoint{Address: "10.10.0.1", Pod: "q"}),
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := meshtest.New(t)
			w.Observe(c.values)
			if got := endpoints(w, host); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestPortsOfSlices checks which ports of a service the endpoints of a slice serve: the numbered ones of that name; all others, at the ports of their
// targets, if some port of the slice has no number, which means all ports; none if the slice has no port.
func TestPortsOfSlices(t *testing.T) {
	const host = "a.shop.svc.cluster.local"
	written := &kube.Service{Ports: []kube.ServicePort{
		{Name: "web", Number: 80, Target: 8080, Protocol: mesh.TCP}, {Name: "other", Number: 81, Target: 81, Protocol: mesh.TCP},
	}}
	for _, c := range []struct {
		name  string
		ports []kube.SlicePort
		want  string
	}{
		{"numbered", []kube.SlicePort{{Name: "web", Number: 9000}}, "80: 9000, 81: 0"},
		{"all", []kube.SlicePort{{}}, "80: 8080, 81: 81"},
		{"all, by a name", []kube.SlicePort{{Name: "web"}}, "80: 8080, 81: 81"},
		{"one numbered, and all", []kube.SlicePort{{Name: "web", Number: 9000}, {}}, "80: 9000, 81: 81"},
		{"all, and one numbered", []kube.SlicePort{{Name: "other"}, {Name: "web", Number: 9000}}, "80: 9000, 81: 81"},
		{"none", nil, "80: 0, 81: 0"},
	} {
		w := meshtest.New(t)
		w.Observe(values{
			in("west", kube.KindService, "a"): written,
			in("west", kube.KindEndpointSlice, "s"): &kube.Slice{
				Service: "a", Ports: intern.Of(c.ports...), Endpoints: []kube.SliceEndpoint{{Address: "10.10.0.1"}},
			},
		})
		r := w.Graph.Naive()
		s, _ := w.Queries.Services.Service.Get(r, service.HostView{Host: host})
		var got []string
		for _, p := range s.Ports {
			number := uint32(0)
			for _, e := range w.Queries.Services.Endpoints(r, s, p.Number) {
				number = e.Port
			}
			got = append(got, fmt.Sprintf("%d: %d", p.Number, number))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestPodsOfOtherNamespaces checks that an endpoint that refers to a pod of another namespace has the identity of that pod, and waits for
// it.
func TestPodsOfOtherNamespaces(t *testing.T) {
	const host = "a.shop.svc.cluster.local"
	w := meshtest.New(t)
	pod := func(account string) *kube.Pod { return &kube.Pod{Address: "10.10.0.1", ServiceAccount: account} }
	identities := func() string {
		r := w.Graph.Naive()
		s, _ := w.Queries.Services.Service.Get(r, service.HostView{Host: host})
		return strings.Join(w.Queries.Services.SubjectAltNames(r, s), " ")
	}
	w.Observe(values{
		in("west", kube.KindService, "a"):       &kube.Service{Ports: []kube.ServicePort{{Number: 80, Protocol: mesh.TCP}}},
		in("west", kube.KindPod, "p"):           pod("here"),
		in("west", kube.KindEndpointSlice, "s"): &kube.Slice{Service: "a", Endpoints: []kube.SliceEndpoint{{Address: "10.10.0.1", Pod: "other/p"}}},
	})
	if got, at := identities(), endpoints(w, host); got != "" || at != "" {
		t.Errorf("before the pod is known: %q at %q", got, at)
	}
	w.Observe(values{{Kind: kube.KindPod, Namespace: "other", Name: "p", Cluster: "west"}: pod("there")})
	if got, want := identities(), "spiffe://cluster.local/ns/other/sa/there"; got != want || endpoints(w, host) != "10.10.0.1" {
		t.Errorf("got %q at %q, want %q", got, endpoints(w, host), want)
	}
}

// TestLocalityOfPods checks that the label of a pod goes before the labels of its node, whatever parts it has.
func TestLocalityOfPods(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		want   mesh.Locality
	}{
		{nil, mesh.Locality{Region: "r1", Zone: "z1", SubZone: "s1"}},
		{map[string]string{"istio-locality": "r2"}, mesh.Locality{Region: "r2"}},
		{map[string]string{"istio-locality": "r2.z2"}, mesh.Locality{Region: "r2", Zone: "z2"}},
		{map[string]string{"topology.istio.io/locality": "r2.z2.s2"}, mesh.Locality{Region: "r2", Zone: "z2", SubZone: "s2"}},
		{map[string]string{"topology.istio.io/locality": "r2/z.2"}, mesh.Locality{Region: "r2", Zone: "z.2"}},
		{map[string]string{"topology.istio.io/locality": "r2", "istio-locality": "r3.z3"}, mesh.Locality{Region: "r2"}},
	} {
		w := meshtest.New(t)
		w.Observe(values{
			in("west", kube.KindService, "a"):                 selecting(kube.ServicePort{Number: 80}),
			in("west", kube.KindPod, "p"):                     &kube.Pod{Address: "10.10.0.1", Node: "n", Labels: mesh.LabelsOf(c.labels)},
			{Kind: kube.KindNode, Name: "n", Cluster: "west"}: &kube.Node{Locality: mesh.Locality{Region: "r1", Zone: "z1", SubZone: "s1"}},
			in("west", kube.KindEndpointSlice, "s"):           &kube.Slice{Service: "a", Endpoints: []kube.SliceEndpoint{{Address: "10.10.0.1", Pod: "p"}}},
		})
		r := w.Graph.Naive()
		s, _ := w.Queries.Services.Service.Get(r, service.HostView{Host: "a.shop.svc.cluster.local"})
		if list := w.Queries.Services.Endpoints(r, s, 80); len(list) != 1 || list[0].Locality != c.want {
			t.Errorf("%v: %+v, want %v", c.labels, list, c.want)
		}
		d, _ := w.Queries.Services.Workload.Get(r, service.Workload{Cluster: "west", Namespace: "shop", Name: "p"})
		if d.Place.Locality != c.want {
			t.Errorf("%v: the workload is in %v, want %v", c.labels, d.Place.Locality, c.want)
		}
	}
}

// TestWorkloadOfPods: the endpoint of a pod names the workload that the pod belongs to, and a change of it reaches the endpoint.
func TestWorkloadOfPods(t *testing.T) {
	w := meshtest.New(t)
	w.Observe(values{
		in("west", kube.KindService, "a"):       selecting(kube.ServicePort{Number: 80}),
		in("west", kube.KindEndpointSlice, "s"): &kube.Slice{Service: "a", Endpoints: []kube.SliceEndpoint{{Address: "10.10.0.1", Pod: "p"}}},
	})
	for _, owner := range []string{"a-v1", "a-v2"} {
		w.Observe(values{in("west", kube.KindPod, "p"): &kube.Pod{Address: "10.10.0.1", Labels: appA, Owner: kube.Workload{Kind: "Deployment", Name: owner}}})
		r := w.Graph.Naive()
		s, _ := w.Queries.Services.Service.Get(r, service.HostView{Host: "a.shop.svc.cluster.local"})
		if list := w.Queries.Services.Endpoints(r, s, 80); len(list) != 1 || list[0].Workload != owner {
			t.Errorf("%+v, want %s", list, owner)
		}
	}
}

// TestSamePorts: gateways behind a Service listen at its target ports, unless its label says that they keep the ports of their servers.
func TestSamePorts(t *testing.T) {
	for _, same := range []bool{false, true} {
		s := selecting(kube.ServicePort{Number: 80, Target: 8080})
		s.SamePorts = same
		w := meshtest.New(t)
		w.Observe(values{in("west", kube.KindService, "a"): s, in("west", kube.KindPod, "p"): &kube.Pod{Address: "10.10.0.1", Labels: appA}})
		d, _ := w.Queries.Services.Workload.Get(w.Graph.Naive(), service.Workload{Cluster: "west", Namespace: "shop", Name: "p"})
		if got, want := fmt.Sprint(d.Targets.Items()), map[bool]string{false: "[{80 8080}]", true: "[]"}[same]; got != want || d.Ports.Empty() {
			t.Errorf("%t: targets %s, want %s; ports %v", same, got, want, d.Ports)
		}
	}
}

// TestTargetsOfTwoServices: behind two Services with the same port, gateways listen at the target ports of both. A port that keeps its number is a
// target only if the other Service translates it.
func TestTargetsOfTwoServices(t *testing.T) {
	for target, want := range map[uint32]string{9090: "[{80 8080} {80 9090}]", 8080: "[{80 8080}]", 80: "[{80 80} {80 8080}]"} {
		first := selecting(kube.ServicePort{Number: 80, Target: 8080})
		first.Ports = append(first.Ports, kube.ServicePort{Number: 81, Target: 81})
		w := meshtest.New(t)
		w.Observe(values{
			in("west", kube.KindService, "a"): first,
			in("west", kube.KindService, "b"): selecting(kube.ServicePort{Number: 80, Target: target}),
			in("west", kube.KindPod, "p"):     &kube.Pod{Address: "10.10.0.1", Labels: appA},
		})
		d, _ := w.Queries.Services.Workload.Get(w.Graph.Naive(), service.Workload{Cluster: "west", Namespace: "shop", Name: "p"})
		if got := fmt.Sprint(d.Targets.Items()); got != want {
			t.Errorf("target %d: %s, want %s", target, got, want)
		}
	}
}

// TestPodsOfServiceEntry checks that a ServiceEntry selects only pods that are ready and have an address and all labels
// of the selector.
func TestPodsOfServiceEntry(t *testing.T) {
	w := meshtest.New(t)
	w.Apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec:
  hosts: [a.example.com]
  ports: [{number: 80, name: tcp, protocol: TCP}]
  resolution: STATIC
  workloadSelector: {labels: {app: a, v: "1"}}
`)
	both := mesh.LabelsOf(map[string]string{"app": "a", "v": "1", "x": "y"})
	w.Observe(values{
		in("west", kube.KindPod, "good"):    &kube.Pod{Address: "10.10.0.1", Labels: both},
		in("east", kube.KindPod, "good"):    &kube.Pod{Address: "10.20.0.1", Labels: both},
		in("west", kube.KindPod, "unready"): &kube.Pod{Address: "10.10.0.2", Labels: both, NotReady: true},
		in("west", kube.KindPod, "nowhere"): &kube.Pod{Labels: both},
		in("west", kube.KindPod, "other"):   &kube.Pod{Address: "10.10.0.3", Labels: mesh.LabelsOf(map[string]string{"app": "a", "v": "2"})},
		in("west", kube.KindPod, "partial"): &kube.Pod{Address: "10.10.0.4", Labels: appA},
		in("west", kube.KindPod, "another"): &kube.Pod{Address: "10.10.0.5", Labels: mesh.LabelsOf(map[string]string{"app": "b", "v": "1"})},
	})
	if got, want := endpoints(w, "a.example.com"), "10.10.0.1 app=a v=1 x=y, 10.20.0.1 app=a v=1 x=y"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// endpoints lists the endpoints of port 80 of a host, with their labels, by address. It says which are not ready.
func endpoints(w *meshtest.World, host string) string {
	r := w.Graph.Naive()
	s, ok := w.Queries.Services.Service.Get(r, service.HostView{Host: host})
	if !ok {
		return "no service"
	}
	var list []string
	for _, e := range w.Queries.Services.Endpoints(r, s, 80) {
		text := e.Address
		for l := range e.Labels.All() {
			text += " " + l.Name + "=" + l.Value
		}
		if e.Health != mesh.Healthy {
			text += " not ready"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// TestCircleOfAliases checks that names which lead to each other end.
func TestCircleOfAliases(t *testing.T) {
	w := meshtest.New(t)
	w.Observe(values{
		in("west", kube.KindService, "b"): &kube.Service{Type: kube.ExternalName, ExternalName: "c.shop.svc.cluster.local"},
		in("west", kube.KindService, "c"): &kube.Service{Type: kube.ExternalName, ExternalName: "b.shop.svc.cluster.local"},
	})
	got := w.Queries.Services.Aliases(w.Graph.Naive(), service.HostView{Host: "b.shop.svc.cluster.local"})
	if want := []service.Alias{{Host: "c.shop.svc.cluster.local", Namespace: "shop"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestShortExternalNames checks that an external name with few dots is a name outside, and no short name of a Service.
func TestShortExternalNames(t *testing.T) {
	for _, name := range []string{"a", "a.shop", "a.shop.svc", "a.shop.svc.cluster"} {
		w := meshtest.New(t)
		w.Observe(values{in("west", kube.KindService, "a"): &kube.Service{}, in("west", kube.KindService, "b"): &kube.Service{Type: kube.ExternalName, ExternalName: name}})
		for _, viewer := range []string{"", "shop"} {
			view := service.HostView{Host: "a.shop.svc.cluster.local", Viewer: viewer}
			if got := w.Queries.Services.Aliases(w.Graph.Naive(), view); len(got) > 0 {
				t.Errorf("%q makes another name: %v", name, got)
			}
		}
	}
}

// TestAliases checks which other names a host has.
func TestAliases(t *testing.T) {
	const host = "a.example.com"
	alias := func(of string, exportTo ...string) *kube.Service {
		return &kube.Service{Type: kube.ExternalName, ExternalName: of, ExportTo: exportTo}
	}
	const taken = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: taken, namespace: shop}
spec: {hosts: [taken.shop.svc.cluster.local], ports: [{number: 80, name: http}], resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wanted, namespace: other}
spec: {hosts: [wanted.shop.svc.cluster.local], ports: [{number: 80, name: http}], resolution: DNS}`
	many := values{}
	for i := range 60 {
		many[in("west", kube.KindService, fmt.Sprintf("n%02d", i))] = alias(host)
	}
	for _, c := range []struct {
		name, viewer string
		values       values
		first        string // the names, without their namespace
		count        int
	}{
		{"a name of a name", "", values{
			in("west", kube.KindService, "b"): alias(host), in("west", kube.KindService, "c"): alias("b.shop.svc.cluster.local"),
		}, "b c", 2},
		{"another name in the cluster that leads", "", values{
			in("west", kube.KindService, "b"): alias(host), in("east", kube.KindService, "b"): alias("c.shop.svc.cluster.local"),
		}, "", 0},
		{"the same name in another cluster, where it is one for something else", "", values{
			in("east", kube.KindService, "b"): alias(host), in("west", kube.KindService, "b"): alias("c.shop.svc.cluster.local"),
		}, "b", 1},
		{"the name of a Service", "", values{
			in("west", kube.KindService, "b"): alias(host), in("east", kube.KindService, "b"): &kube.Service{},
		}, "", 0},
		{"the host of a ServiceEntry of its namespace", "", values{
			in("west", kube.KindService, "taken"): alias(host), in("west", kube.KindService, "b"): alias(host),
		}, "b", 1},
		{"the host of a ServiceEntry of another namespace", "", values{in("west", kube.KindService, "wanted"): alias(host)}, "wanted", 1},
		{"not exported", "", values{in("west", kube.KindService, "b"): alias(host, ".")}, "", 0},
		{"not exported, in its namespace", "shop", values{in("west", kube.KindService, "b"): alias(host, ".")}, "b", 1},
		{"too many", "", many, "n00", 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := meshtest.New(t)
			w.Observe(c.values)
			w.Apply(taken)
			var got []string
			for _, a := range w.Queries.Services.Aliases(w.Graph.Naive(), service.HostView{Host: host, Viewer: c.viewer}) {
				got = append(got, strings.TrimSuffix(a.Host, ".shop.svc.cluster.local"))
			}
			if len(got) != c.count || !strings.HasPrefix(strings.Join(got, " "), c.first) {
				t.Errorf("got %d names %q, want %d with the first %q", len(got), got, c.count, c.first)
			}
		})
	}
}

// TestAliasOf: the name of a Service of type ExternalName is another name for a host, also through a chain of them; its only port is known.
func TestAliasOf(t *testing.T) {
	w := meshtest.New(t)
	w.Observe(values{
		in("west", kube.KindService, "old"):   &kube.Service{Type: kube.ExternalName, ExternalName: "new.shop.svc.cluster.local", Ports: []kube.ServicePort{{Number: 80, Protocol: mesh.HTTP}}},
		in("west", kube.KindService, "older"): &kube.Service{Type: kube.ExternalName, ExternalName: "old.shop.svc.cluster.local"},
		in("west", kube.KindService, "new"):   selecting(kube.ServicePort{Number: 80}),
	})
	for _, c := range []struct {
		name string
		port uint32
		ok   bool
	}{{"old", 80, true}, {"older", 0, true}, {"new", 0, false}} {
		target, port, ok := w.Queries.Services.AliasOf(w.Graph.Naive(), c.name+".shop.svc.cluster.local", "edge")
		if target != "new.shop.svc.cluster.local" || port != c.port || ok != c.ok {
			t.Errorf("%s: %s %d %t, want port %d, %t", c.name, target, port, ok, c.port, c.ok)
		}
	}
}
