package class_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// change is one kind of change to a mesh.
type change struct {
	name string
	do   func(w *meshtest.World, l meshtest.Large)
}

func changes() []change {
	put := func(make func(l meshtest.Large) *api.Object) func(*meshtest.World, meshtest.Large) {
		return func(w *meshtest.World, l meshtest.Large) { w.Put(make(l)) }
	}
	return []change{
		{"endpoint", put(func(l meshtest.Large) *api.Object { return l.ServiceEntry(10, 9) })},
		{"endpoint of a private service", put(func(l meshtest.Large) *api.Object { return l.ServiceEntry(7, 9) })},
		{"routes, public", put(func(l meshtest.Large) *api.Object { return l.VirtualService(10, 50) })},
		{"routes, private", put(func(l meshtest.Large) *api.Object { return l.Private(3, 0, 50) })},
		{"policy", put(func(l meshtest.Large) *api.Object { return l.DestinationRule(10, 7, 2) })},
		{"subset added", put(func(l meshtest.Large) *api.Object { return l.DestinationRule(10, 7, 3) })},
		{"service added", put(func(l meshtest.Large) *api.Object { return l.ServiceEntry(90000, 1) })},
		{"routes added", put(func(l meshtest.Large) *api.Object { return l.VirtualService(90000, 1) })},
		{"service removed", func(w *meshtest.World, l meshtest.Large) {
			w.Delete(l.ServiceEntry(90000, 1).Key, l.VirtualService(90000, 1).Key)
		}},
		{"Sidecar, one host of ten", put(func(l meshtest.Large) *api.Object { return l.Sidecar(17, 40) })},
		{"the same again", put(func(l meshtest.Large) *api.Object { return l.Sidecar(17, 40) })},
	}
}

// placed are changes where some rule prefers near endpoints, so that proxies of different regions are in different
// classes.
func placed() []change {
	return []change{
		{"endpoint of a service with near ones", func(w *meshtest.World, l meshtest.Large) { w.Put(l.Placed(30, 9)) }},
		{"endpoint of another", func(w *meshtest.World, l meshtest.Large) { w.Put(l.ServiceEntry(10, 9)) }},
		{"policy with near endpoints", func(w *meshtest.World, l meshtest.Large) { w.Put(l.Near(30, 7)) }},
		{"another service with near ones", func(w *meshtest.World, l meshtest.Large) { w.Put(l.Placed(40, 1), l.Near(40, 7)) }},
	}
}

// pool has a service whose endpoints are workloads, a TCP service, and one whose connections are recognised by SNI.
const pool = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: pool, namespace: pools}
spec:
  hosts: [pool.example]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 5432, name: tcp, protocol: TCP}, {number: 443, name: tls, protocol: TLS}]
  resolution: STATIC
  location: MESH_INTERNAL
  workloadSelector: {labels: {app: pool}}
---
` + member

const member = `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: member, namespace: pools}
spec: {address: 10.7.0.1, labels: {app: pool, version: v1}}
`

// workloads are changes of the workloads of a service, and of how connections to it are routed.
func workloads() []change {
	apply := func(yaml string) func(*meshtest.World, meshtest.Large) {
		return func(w *meshtest.World, _ meshtest.Large) { w.Apply(yaml) }
	}
	second := strings.NewReplacer("name: member", "name: second", "10.7.0.1", "10.7.0.2").Replace(member)
	moved := strings.Replace(second, "10.7.0.2", "10.7.0.3", 1)
	routes := func(port int) string {
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: pool, namespace: pools}
spec:
  hosts: [pool.example]
  tcp: [{match: [{port: 5432}], route: [{destination: {host: pool.example, port: {number: %d}}}]}]
  tls: [{match: [{port: 443, sniHosts: [pool.example]}], route: [{destination: {host: pool.example, port: {number: %d}}}]}]
`, port, port)
	}
	return []change{
		{"workload added", apply(second)},
		{"address of a workload", apply(moved)},
		{"label of a workload that no subset names", apply(strings.Replace(moved, "version: v1", "version: v2", 1))},
		{"workload of nobody", apply(strings.NewReplacer("name: second", "name: third", "app: pool", "app: other").Replace(second))},
		{"workload removed", func(w *meshtest.World, _ meshtest.Large) {
			w.Delete(api.Key{Kind: "WorkloadEntry", Namespace: "pools", Name: "second"})
		}},
		{"routes of connections added", apply(routes(5432))},
		{"routes of connections", apply(routes(443))},
	}
}

// policies are changes of policies about requests.
func policies() []change {
	apply := func(yaml string) func(*meshtest.World, meshtest.Large) {
		return func(w *meshtest.World, _ meshtest.Large) { w.Apply(yaml) }
	}
	policy := func(namespace, name, selector, path string) string {
		return fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %s, namespace: %s}
spec: {%srules: [{to: [{operation: {paths: [%s]}}]}]}
`, name, namespace, selector, path)
	}
	const one = "selector: {matchLabels: {app: app4}}, "
	return []change{
		{"policy for one workload", apply(policy("ns-04", "one", one, "/b"))},
		{"policy for no workload", apply(policy("ns-04", "none", "selector: {matchLabels: {app: none}}, ", "/a"))},
		{"policy of a namespace added", apply(policy("ns-04", "all", "", "/a"))},
		{"policy of a namespace", apply(policy("ns-04", "all", "", "/b"))},
		{"policy of the mesh added", apply(policy("istio-system", "all", "", "/a"))},
		{"policy of the mesh", apply(policy("istio-system", "all", "", "/b"))},
		{"policy of the mesh removed", func(w *meshtest.World, _ meshtest.Large) {
			w.Delete(api.Key{Kind: api.KindAuthorizationPolicy, Namespace: "istio-system", Name: "all"})
		}},
	}
}

// filters are changes of EnvoyFilters, for one workload and for the mesh, and of objects whose resources are patched.
func filters() []change {
	apply := func(yaml string) func(*meshtest.World, meshtest.Large) {
		return func(w *meshtest.World, _ meshtest.Large) { w.Apply(yaml) }
	}
	filter := func(namespace, name, selector, patch string) string {
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: %s, namespace: %s}
spec: {%sconfigPatches: [%s]}
`, name, namespace, selector, patch)
	}
	timeout := func(seconds int, host string) string {
		return fmt.Sprintf("{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: %s}}, patch: {operation: MERGE, value: {connect_timeout: %ds}}}", host, seconds)
	}
	inbound := func(bytes int) string {
		return fmt.Sprintf("{applyTo: LISTENER, match: {context: SIDECAR_INBOUND}, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: %d}}}", bytes)
	}
	header := func(host, name string) string {
		return fmt.Sprintf("{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: '%s:80'}}}, patch: {operation: MERGE, value: {request_headers_to_remove: [%s]}}}", host, name)
	}
	const one = "workloadSelector: {labels: {app: app4}}, "
	l := meshtest.Large{}
	return []change{
		{"EnvoyFilter for no workload", apply(filter("ns-04", "none", "workloadSelector: {labels: {app: none}}, ", inbound(1)))},
		{"EnvoyFilter for one workload", apply(filter("ns-04", "one", one, inbound(2)))},
		{"EnvoyFilter of the mesh added, clusters of a host", apply(filter("istio-system", "all", "", timeout(1, l.Host(10))))},
		{"EnvoyFilter of the mesh, clusters of a host", apply(filter("istio-system", "all", "", timeout(2, l.Host(10))))},
		{"endpoint of the host", func(w *meshtest.World, l meshtest.Large) { w.Put(l.ServiceEntry(10, 8)) }},
		{"policy of the host", func(w *meshtest.World, l meshtest.Large) { w.Put(l.DestinationRule(10, 9, 2)) }},
		{"policy of another host", func(w *meshtest.World, l meshtest.Large) { w.Put(l.DestinationRule(20, 9, 2)) }},
		{"virtual host", apply(filter("istio-system", "host", "", header(l.Host(10), "a")))},
		{"virtual host again", apply(filter("istio-system", "host", "", header(l.Host(10), "b")))},
		{"routes of the host", func(w *meshtest.World, l meshtest.Large) { w.Put(l.VirtualService(10, 40)) }},
		{"routes of another host", func(w *meshtest.World, l meshtest.Large) { w.Put(l.VirtualService(20, 40)) }},
	}
}

// An EnvoyFilter for one workload costs the class of that workload. One for the mesh is applied once for all classes, and only to what its
// patches name.
func TestCostOfFilters(t *testing.T) {
	same(t, "testdata/cost-filters.txt", filters(), func(meshtest.Large) []*api.Object {
		return meshtest.Parse(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: ns-04}
spec:
  hosts: [own.example]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.250.0.4, labels: {app: app4}}]
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: one, namespace: ns-04}
spec:
  workloadSelector: {labels: {app: app4}}
  configPatches:
  - {applyTo: LISTENER, match: {context: SIDECAR_INBOUND}, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 1}}}
`)
	})
}

// telemetries are changes of Telemetries.
func telemetries() []change {
	apply := func(namespace, name, selector, filter string) func(*meshtest.World, meshtest.Large) {
		return func(w *meshtest.World, _ meshtest.Large) {
			w.Apply(fmt.Sprintf(`
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: %s, namespace: %s}
spec: {%saccessLogging: [{providers: [{name: envoy}], filter: {expression: "%s"}}]}
`, name, namespace, selector, filter))
		}
	}
	const one = "selector: {matchLabels: {app: app4}}, "
	return []change{
		{"", func(w *meshtest.World, _ meshtest.Large) { w.Configure("accessLogFile: /dev/stdout\n") }},
		{"Telemetry for one workload", apply("ns-04", "one", one, "response.code >= 500")},
		{"Telemetry for no workload", apply("ns-04", "none", "selector: {matchLabels: {app: none}}, ", "true")},
		{"Telemetry of a namespace added", apply("ns-04", "all", "", "response.code >= 400")},
		{"Telemetry of a namespace", apply("ns-04", "all", "", "response.code >= 401")},
		{"Telemetry of a namespace, overruled", apply("ns-04", "second", "", "true")},
		{"Telemetry of the mesh added", apply("istio-system", "all", "", "response.code >= 400")},
		{"Telemetry of the mesh", apply("istio-system", "all", "", "response.code >= 401")},
	}
}

// costs applies changes to a mesh of a given size with some more objects, and lists the cells that ran and the bytes to
// be sent.
func costs(t *testing.T, services int, changes []change, more func(l meshtest.Large) []*api.Object) string {
	w, l := meshtest.New(t), meshtest.Large{Services: services}
	w.Put(append(l.Objects(), more(l)...)...)
	for _, p := range l.Proxies(t) {
		w.Connect(p)
	}
	var out strings.Builder
	for _, c := range changes {
		before := maps.Clone(w.States())
		c.do(w, l)
		cost := w.Graph.Cost()
		if c.name == "" { // it prepares the mesh
			continue
		}
		total := 0
		for _, n := range cost {
			total += n
		}
		fmt.Fprintf(&out, "-- %s --\ncells %d\n", c.name, total)
		for _, name := range slices.Sorted(maps.Keys(cost)) {
			fmt.Fprintf(&out, "  %s %d\n", name, cost[name])
		}
		sent := map[string]int{}
		for class, s := range w.States() {
			for typ := range resource.Type(resource.Types) {
				for d := range resource.Diff(before[class].Layers(typ), s.Layers(typ)) {
					sent[typ.String()+" "+strings.ReplaceAll(d.Name, "90000", "new")]++
				}
			}
		}
		out.WriteString("sent, and to how many classes\n")
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			fmt.Fprintf(&out, "  %s %d\n", name, sent[name])
		}
	}
	for _, f := range w.Graph.Faults() {
		t.Errorf("cell failed: %+v", f)
	}
	return out.String()
}

// The cost of a change depends only on the rows it touches: the same cells run, and the same bytes are sent, whatever the size of the mesh.
func TestCost(t *testing.T) {
	same(t, "testdata/cost.txt", changes(), func(meshtest.Large) []*api.Object { return nil })
}

// The locality of clients matters only to those hosts for which a rule says so.
func TestCostOfPlaces(t *testing.T) {
	same(t, "testdata/cost-places.txt", placed(), func(l meshtest.Large) []*api.Object {
		return []*api.Object{l.Placed(30, 1), l.Near(30, 5)}
	})
}

func TestCostOfWorkloads(t *testing.T) {
	same(t, "testdata/cost-workloads.txt", workloads(), func(meshtest.Large) []*api.Object { return meshtest.Parse(t, pool) })
}

// A policy for one workload costs the class of that workload. A policy for all workloads is translated once, and no proxy changes its
// class. Nothing outbound changes.
func TestCostOfPolicies(t *testing.T) {
	same(t, "testdata/cost-policies.txt", policies(), func(meshtest.Large) []*api.Object {
		return meshtest.Parse(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: ns-04}
spec:
  hosts: [own.example]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.250.0.4, labels: {app: app4}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: one, namespace: ns-04}
spec: {selector: {matchLabels: {app: app4}}}
`)
	})
}

// A Telemetry for one workload costs the listeners of its class. One for all workloads of a namespace, or of the mesh, moves no proxy to
// another class.
func TestCostOfTelemetries(t *testing.T) {
	same(t, "testdata/cost-telemetries.txt", telemetries(), func(meshtest.Large) []*api.Object {
		return meshtest.Parse(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: ns-04}
spec:
  hosts: [own.example]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.250.0.4, labels: {app: app4}}]
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: one, namespace: ns-04}
spec: {selector: {matchLabels: {app: app4}}, accessLogging: [{providers: [{name: envoy}]}]}
`)
	})
}

// An edit of an endpoint runs the same cells with and without networks, and one more for the proxies of each network into which gateways
// lead.
func TestCostOfNetworks(t *testing.T) {
	cost := func(networks string, nodes ...string) map[string]int {
		w, l := meshtest.New(t), meshtest.Large{Services: 100}
		if networks != "" {
			w.ConfigureNetworks(networks)
		}
		w.Put(l.Objects()...)
		for _, p := range l.Proxies(t) {
			w.Connect(p)
		}
		for i, metadata := range nodes {
			w.Connect(meshtest.Node(t, fmt.Sprintf("sidecar~10.9.9.%d~far-%d.far~far.svc.cluster.local", i+1, i), metadata))
		}
		w.Graph.Cost()
		w.Put(l.ServiceEntry(10, 9))
		return maps.Clone(w.Graph.Cost())
	}
	const networks = `
networks:
  near: {endpoints: [{fromCidr: 10.0.0.0/8}]}
  far: {endpoints: [{fromCidr: 172.16.0.0/12}], gateways: [{address: 192.0.2.2, port: 15443}]}
`
	plain := cost("")
	if got := cost(networks); !maps.Equal(got, plain) {
		t.Errorf("with networks these cells run: %v; without: %v", got, plain)
	}
	none := cost("", "{}")
	got := cost(networks, `{"NETWORK": "far"}`)
	for name, n := range got {
		if name != "ownAssignments" && name != "ownAssignments.sites" && n != none[name] {
			t.Errorf("with a proxy of another network %d cells of %s run; without networks %d", n, name, none[name])
		}
	}
	if got["ownAssignments"] != 1 {
		t.Errorf("%d cells find out whether the host has endpoints in the network of the proxy; want 1", got["ownAssignments"])
	}
}

func same(t *testing.T, path string, changes []change, more func(l meshtest.Large) []*api.Object) {
	small := costs(t, 100, changes, more)
	if !testing.Short() {
		if large := costs(t, 1000, changes, more); large != small {
			t.Errorf("costs depend on the size of the mesh:\n%s", meshtest.Difference(small, large))
		}
	}
	golden(t, path, small)
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
