package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/kube"
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

// workloadCase is a workload among objects of a cluster, and what it is known to serve.
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

// TestWorkloadOfPod checks which services a pod serves. Each Service here has its port number as the port of the pod, unless the
// pod names the port.
func TestWorkloadOfPod(t *testing.T) {
	for _, c := range workloadCases() {
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

// TestPodsOfServiceEntry checks which pods a ServiceEntry selects: those that are ready, with an address and all labels of the
// selector.
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
