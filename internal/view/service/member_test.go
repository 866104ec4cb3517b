package service_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// clusterIP is a Service of the app "a" with an address and ports.
func clusterIP(address string, ports ...kube.ServicePort) *kube.Service {
	return &kube.Service{Addresses: []string{address}, Selector: appA, Ports: ports}
}

func tcp(name string, number uint32) kube.ServicePort {
	return kube.ServicePort{Name: name, Number: number, Protocol: mesh.TCP, Target: number}
}

// addPod adds a pod of the app "a" and the slice of the Service with its address. ports are the ports of the slice.
func addPod(v values, cluster, address, account string, ports ...kube.SlicePort) {
	v[in(cluster, kube.KindPod, "a-1")] = &kube.Pod{Address: address, ServiceAccount: account, Labels: appA}
	v[in(cluster, kube.KindEndpointSlice, "a-x")] = &kube.Slice{
		Service: "a", Controlled: true, Endpoints: []kube.SliceEndpoint{{Address: address, Pod: "a-1"}}, Ports: intern.Of(ports...),
	}
}

// TestMembers checks a service whose name Services of several clusters have. The control plane is in the cluster
// "home". The golden file says for each case the service and the problems.
func TestMembers(t *testing.T) {
	equal := func(clusters ...string) values {
		v := values{}
		for i, cluster := range clusters {
			v[in(cluster, kube.KindService, "a")] = clusterIP(fmt.Sprintf("10.96.%d.1", i), tcp("tcp", 80))
			addPod(v, cluster, fmt.Sprintf("10.%d.0.1", i), "one", kube.SlicePort{Name: "tcp", Number: 80})
		}
		return v
	}
	with := func(v values, more values) values {
		for k, value := range more {
			v[k] = value
		}
		return v
	}
	a := func(cluster string) api.Key { return in(cluster, kube.KindService, "a") }
	other, exported, identities := clusterIP("10.96.9.1", tcp("other", 80)), clusterIP("10.96.9.1", tcp("tcp", 80)), clusterIP("10.96.9.1", tcp("tcp", 80))
	exported.ExportTo = []string{"."}
	identities.Identities = []string{"spiffe://cluster.local/ns/shop/sa/two"}
	http := tcp("tcp", 80)
	http.Protocol = mesh.HTTP
	steps := []struct {
		name   string
		values values
	}{
		{"one cluster", equal("east")},
		{"two clusters, of which none is that of the control plane", equal("west", "east")},
		{"three clusters", equal("west", "home", "east")},
		{"a port with another number in the other cluster", with(equal("home", "east"), values{a("east"): clusterIP("10.96.9.1", tcp("tcp", 81))})},
		{"a port with another name", with(equal("home", "east"), values{a("east"): other})},
		{"a port more, and another protocol", with(equal("home", "east"), values{a("east"): clusterIP("10.96.9.1", http, tcp("more", 90))})},
		{"headless in the other cluster", with(equal("home", "east"), values{a("east"): &kube.Service{Type: kube.Headless, Selector: appA, Ports: []kube.ServicePort{tcp("tcp", 80)}}})},
		{"headless in the cluster that leads", with(equal("home", "east"), values{a("home"): &kube.Service{Type: kube.Headless, Selector: appA, Ports: []kube.ServicePort{tcp("tcp", 80)}}})},
		{"an ExternalName in the cluster that leads", with(equal("home", "east"), values{a("home"): &kube.Service{Type: kube.ExternalName, ExternalName: "a.example.com"}})},
		{"an ExternalName in the other cluster", with(equal("home", "east"), values{a("east"): &kube.Service{Type: kube.ExternalName, ExternalName: "a.example.com"}})},
		{"the other cluster exports to its namespace only", with(equal("home", "east"), values{a("east"): exported})},
		{"the cluster that leads exports to its namespace only", with(equal("home", "east"), values{a("home"): exported})},
		{"identities of the other cluster", with(equal("home", "east"), values{a("east"): identities})},
	}
	archive := &txtar.Archive{Comment: []byte("Which service a name is that Services of several clusters have. The control plane is in the cluster home.\n\n")}
	for _, step := range steps {
		w := meshtest.NewWith(t, meshtest.Options{ClusterID: "home"})
		w.Observe(step.values)
		w.Check()
		archive.Files = append(archive.Files, txtar.File{Name: step.name, Data: []byte(whatIs(w, "a.shop.svc.cluster.local"))})
	}
	golden(t, "testdata/members.txt", txtar.Format(archive))
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got) {
		t.Errorf("%s differs; run with -update if that is meant:\n%s", file, meshtest.Difference(string(want), string(got)))
	}
}

// whatIs describes a service as clients of another namespace see it, and the problems.
func whatIs(w *meshtest.World, host string) string {
	var b strings.Builder
	r := w.Graph.Naive()
	s, ok := w.Queries.Services.Service.Get(r, service.HostView{Host: host})
	if !ok {
		fmt.Fprintln(&b, "no service")
	} else {
		for _, p := range s.Declarations {
			fmt.Fprintln(&b, "declared by", p.Object)
		}
		fmt.Fprintln(&b, "addresses", s.Addresses)
		for _, p := range s.Ports {
			var list []string
			for _, e := range w.Queries.Services.Endpoints(r, s, p.Number) {
				list = append(list, fmt.Sprintf("%s:%d in %s", e.Address, e.Port, e.Cluster))
			}
			fmt.Fprintf(&b, "port %d %s %s: %s\n", p.Number, p.Name, p.Protocol, strings.Join(list, ", "))
		}
		names := w.Queries.Services.SubjectAltNames(r, s)
		slices.Sort(names)
		fmt.Fprintln(&b, "identities", strings.Join(names, " "))
	}
	for _, p := range w.Problems() {
		fmt.Fprintln(&b, "problem:", p)
	}
	return b.String()
}
