package nametable_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/nds"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares the names that agents are sent with the golden files about the rules that this package owns. See meshtest.Golden
// for their form.
func TestGolden(t *testing.T) { meshtest.Golden{Update: *update, Envoy: os.Getenv("ENVOY")}.Run(t) }

// table shows the names of a class, a line for each.
func table(t *testing.T, s *resource.State) string {
	t.Helper()
	var out strings.Builder
	for r := range s.Layers(resource.NameTable).All() {
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(bytes.Join(r.AppendSotW(nil), nil), &m); err != nil {
			t.Fatal(err)
		}
		err := nds.Decode(m.Resources[0].Value, func(e nds.Entry) {
			if e.Host != r.Name() {
				t.Errorf("the resource %s has the name %s", r.Name(), e.Host)
			}
			fmt.Fprintln(&out, e.Host, e.Registry, e.ShortName, e.Namespace, strings.Join(e.Addresses, " "))
		})
		if err != nil {
			t.Error(err)
		}
	}
	return out.String()
}

func in(cluster, kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: "shop", Name: name, Cluster: cluster}
}

func service(typ kube.ServiceType, addresses ...string) *kube.Service {
	return &kube.Service{
		Type: typ, Addresses: addresses, Selector: mesh.LabelsOf(map[string]string{"app": "a"}),
		Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP}, {Name: "tcp", Number: 90, Protocol: mesh.TCP}},
	}
}

func slice(of string, endpoints ...kube.SliceEndpoint) *kube.Slice {
	return &kube.Slice{
		Service: of, Controlled: true, Endpoints: endpoints,
		Ports: intern.Of(kube.SlicePort{Name: "http", Number: 8080}, kube.SlicePort{Name: "tcp", Number: 9090}),
	}
}

func pod(address string) *kube.Pod {
	return &kube.Pod{Address: address, Labels: mesh.LabelsOf(map[string]string{"app": "a"})}
}

// TestKubernetes shows the names of Services: the addresses that clients call, the addresses of a headless Service's ready
// endpoints, the pods with host names, and other names.
func TestKubernetes(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "west"})
	const id = "sidecar~10.10.0.1~client.shop~shop.svc.cluster.local"
	w.Connect(meshtest.Node(t, id, `{"CLUSTER_ID": "west", "DNS_CAPTURE": "true"}`))
	var out strings.Builder
	for _, step := range []struct {
		name   string
		values map[api.Key]kube.Value
	}{
		{"a Service with addresses of both IP versions", map[api.Key]kube.Value{
			in("west", kube.KindService, "web"): service(kube.ClusterIP, "10.96.0.1", "fd00::1"),
		}},
		{"a headless Service without endpoints", map[api.Key]kube.Value{
			in("west", kube.KindService, "db"): service(kube.Headless),
		}},
		{"pods, one of which is not ready", map[api.Key]kube.Value{
			in("west", kube.KindPod, "db-0"): pod("10.10.0.5"), in("west", kube.KindPod, "db-1"): pod("10.10.0.6"), in("west", kube.KindPod, "x"): pod("10.10.0.7"),
			in("west", kube.KindEndpointSlice, "db-s"): slice("db",
				kube.SliceEndpoint{Address: "10.10.0.5", Pod: "db-0", Hostname: "db-0"},
				kube.SliceEndpoint{Address: "10.10.0.6", Pod: "db-1", Hostname: "db-1", Health: kube.NotReady},
				kube.SliceEndpoint{Address: "10.10.0.7", Pod: "x"}),
		}},
		{"the other pod becomes ready", map[api.Key]kube.Value{
			in("west", kube.KindEndpointSlice, "db-s"): slice("db",
				kube.SliceEndpoint{Address: "10.10.0.5", Pod: "db-0", Hostname: "db-0"},
				kube.SliceEndpoint{Address: "10.10.0.6", Pod: "db-1", Hostname: "db-1"},
				kube.SliceEndpoint{Address: "10.10.0.7", Pod: "x"}),
		}},
		{"other names of the first Service, and of a host that nobody declares", map[api.Key]kube.Value{
			in("west", kube.KindService, "www"):  &kube.Service{Type: kube.ExternalName, ExternalName: "web.shop.svc.cluster.local"},
			in("west", kube.KindService, "away"): &kube.Service{Type: kube.ExternalName, ExternalName: "example.com"},
		}},
		{"the same Service in another cluster", map[api.Key]kube.Value{
			in("east", kube.KindService, "web"): service(kube.ClusterIP, "10.98.0.1"),
		}},
		{"the Service goes, and the other cluster still has it", map[api.Key]kube.Value{in("west", kube.KindService, "web"): nil}},
	} {
		w.Observe(step.values)
		class := w.Follow(id)
		w.Check()
		fmt.Fprintf(&out, "-- %s --\n%s", step.name, table(t, w.State(class)))
	}
	golden(t, "testdata/kube.txt", out.String())
}

// TestClustersAndNetworks shows the names for clients of two clusters, one with a gateway and a network of its own: a Service
// has other addresses in each cluster, and the pods of a headless Service behind a gateway cannot be called by their addresses.
func TestClustersAndNetworks(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "west"})
	w.ConfigureNetworks("networks: {far: {endpoints: [{fromRegistry: east}], gateways: [{address: 192.0.2.1, port: 15443}]}}")
	w.Observe(map[api.Key]kube.Value{
		in("west", kube.KindService, "web"): service(kube.ClusterIP, "10.96.0.1"),
		in("east", kube.KindService, "web"): service(kube.ClusterIP, "10.98.0.1"),
		in("west", kube.KindService, "db"):  service(kube.Headless),
		in("east", kube.KindService, "db"):  service(kube.Headless),
		in("west", kube.KindPod, "db-0"):    pod("10.10.0.5"), in("east", kube.KindPod, "db-0"): pod("10.20.0.5"),
		in("west", kube.KindEndpointSlice, "db-s"): slice("db", kube.SliceEndpoint{Address: "10.10.0.5", Pod: "db-0", Hostname: "db-0"}),
		in("east", kube.KindEndpointSlice, "db-s"): slice("db", kube.SliceEndpoint{Address: "10.20.0.5", Pod: "db-0", Hostname: "db-0"}),
	})
	var out strings.Builder
	for i, metadata := range []string{
		`{"CLUSTER_ID": "west", "DNS_CAPTURE": "true"}`, `{"CLUSTER_ID": "east", "NETWORK": "far", "DNS_CAPTURE": "true"}`, `{"CLUSTER_ID": "east", "DNS_CAPTURE": "true"}`,
	} {
		class := w.Connect(meshtest.Node(t, fmt.Sprintf("sidecar~10.30.0.%d~c-%d.other~other.svc.cluster.local", i, i), metadata))
		w.Check()
		fmt.Fprintf(&out, "-- %s --\n%s", metadata, table(t, w.State(class)))
	}
	golden(t, "testdata/clusters.txt", out.String())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run with -update if that is meant:\n%s", path, meshtest.Difference(string(want), got))
	}
}

// entry is the i-th ServiceEntry of a mesh.
func entry(i, address int) *api.Object {
	o, err := api.Object{Key: api.Key{Namespace: fmt.Sprintf("ns-%d", i%10), Name: fmt.Sprintf("s-%05d", i)}, Spec: &networking.ServiceEntry{
		Hosts: []string{fmt.Sprintf("s-%05d.example.com", i)}, Resolution: networking.ServiceEntry_STATIC,
		Addresses: []string{fmt.Sprintf("10.%d.%d.%d", address, i>>8, i&255)},
		Ports:     []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
	}}.Seal()
	if err != nil {
		panic(err)
	}
	return o
}

// TestCost: one service more, or less, or another address of one, costs one name, whatever the size of the mesh is, and however many
// namespaces there are. Where no agent answers DNS, no cell of names exists.
func TestCost(t *testing.T) {
	costs := func(services int, capture bool) string {
		w := meshtest.New(t)
		var objects []*api.Object
		for i := range services {
			objects = append(objects, entry(i, 9))
		}
		w.Put(objects...)
		for ns := range 5 {
			metadata := "{}"
			if capture {
				metadata = `{"DNS_CAPTURE": "true"}`
			}
			w.Connect(meshtest.Node(t, strings.ReplaceAll(fmt.Sprintf("sidecar~10.250.0.%d~client.NS~NS.svc.cluster.local", ns), "NS", fmt.Sprintf("ns-%d", ns)), metadata))
		}
		var out strings.Builder
		for _, c := range []struct {
			name string
			do   func()
		}{
			{"a service more", func() { w.Put(entry(5000, 9)) }},
			{"another address", func() { w.Put(entry(5000, 8)) }},
			{"a service less", func() { w.Delete(entry(5000, 9).Key) }},
		} {
			before := maps.Clone(w.States())
			c.do()
			fmt.Fprintf(&out, "-- %s --\n", c.name)
			cost := w.Graph.Cost()
			for _, name := range slices.Sorted(maps.Keys(cost)) {
				if strings.Contains(strings.ToLower(name), "names") && name != "namedHosts" {
					fmt.Fprintf(&out, "%s %d\n", name, cost[name])
				}
			}
			for class, s := range w.States() {
				for d := range resource.Diff(before[class].Layers(resource.NameTable), s.Layers(resource.NameTable)) {
					fmt.Fprintf(&out, "sent to %s: %s\n", class.Namespace, d.Name)
				}
			}
		}
		return sorted(out.String())
	}
	small := costs(100, true)
	if large := costs(2000, true); large != small {
		t.Errorf("costs depend on the size of the mesh:\n%s", meshtest.Difference(small, large))
	}
	golden(t, "testdata/cost.txt", small)
	if none := costs(100, false); strings.Contains(none, "ames ") || strings.Contains(none, "sent") {
		t.Errorf("without an agent that answers DNS:\n%s", none)
	}
}

// sorted sorts the lines of each section.
func sorted(text string) string {
	var out strings.Builder
	var section []string
	flush := func() {
		slices.Sort(section)
		for _, line := range section {
			fmt.Fprintln(&out, line)
		}
		section = nil
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "--") {
			flush()
			out.WriteString(line)
			continue
		}
		section = append(section, strings.TrimSuffix(line, "\n"))
	}
	flush()
	return out.String()
}

// TestDualStack: in a dual-stack mesh, names have the addresses of both IP versions for proxies that have both, and of one version for others.
func TestDualStack(t *testing.T) {
	both := pod("10.10.0.5")
	both.MoreAddresses = intern.Of("fd00:10::5")
	at := func(address string) *kube.Slice {
		return slice("db", kube.SliceEndpoint{Address: address, Pod: "db-0", Hostname: "db-0"})
	}
	var out strings.Builder
	for _, on := range []bool{false, true} {
		w := meshtest.NewWith(t, meshtest.Options{ClusterID: "west", DualStack: on})
		w.Observe(map[api.Key]kube.Value{
			in("west", kube.KindService, "web"): service(kube.ClusterIP, "10.96.0.1", "fd00::1"), in("west", kube.KindService, "db"): service(kube.Headless),
			in("west", kube.KindPod, "db-0"): both, in("west", kube.KindEndpointSlice, "db-4"): at("10.10.0.5"), in("west", kube.KindEndpointSlice, "db-6"): at("fd00:10::5"),
		})
		w.Apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: shop}
spec:
  hosts: [own.test]
  addresses: [192.0.2.1, "2001:db8::1"]
  resolution: STATIC
  ports: [{number: 70, name: tcp, protocol: TCP}]
  endpoints: [{address: 192.0.2.3}]
`)
		for _, addresses := range []string{"10.9.0.1,fd00:9::1", "10.9.0.2", "fd00:9::3"} {
			first, _, _ := strings.Cut(addresses, ",")
			class := w.Connect(meshtest.Node(t, "sidecar~"+first+"~client.shop~shop.svc.cluster.local", fmt.Sprintf(`{"INSTANCE_IPS": %q, "DNS_CAPTURE": "true"}`, addresses)))
			w.Check()
			fmt.Fprintf(&out, "-- dual stack %t, %s --\n%s", on, addresses, table(t, w.State(class)))
		}
	}
	golden(t, "testdata/dual-stack.txt", out.String())
}
