package class_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// inCluster is the key of an object of the namespace shop in a cluster.
func inCluster(cluster, kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: "shop", Name: name, Cluster: cluster}
}

// addressed is the Service of the app "a" with an address.
func addressed(address string, created int64) *kube.Service {
	s := shopService(kube.ClusterIP)
	s.Addresses, s.Created = []string{address}, created
	return s
}

// clusterChanges are changes of a Service that the clusters "east" and "west" have, one after the other. The control plane is in
// none of them, so "east" decides.
func clusterChanges() []change {
	step := func(name string, v values) change {
		return change{name, func(w *meshtest.World, _ meshtest.Large) { w.Observe(v) }}
	}
	slice := func(addresses ...string) *kube.Slice {
		var list []kube.SliceEndpoint
		for _, a := range addresses {
			list = append(list, kube.SliceEndpoint{Address: a})
		}
		return shopSlice(list...)
	}
	headless := shopService(kube.Headless)
	return []change{
		step("a service of east", values{
			inCluster("east", kube.KindService, "a"): addressed("10.96.0.1", 1), inCluster("east", kube.KindEndpointSlice, "a-x"): slice("10.1.0.1"),
		}),
		step("the same in west, with the same address", values{
			inCluster("west", kube.KindService, "a"): addressed("10.96.0.1", 5), inCluster("west", kube.KindEndpointSlice, "a-x"): slice("10.2.0.1"),
		}),
		step("another endpoint in east", values{inCluster("east", kube.KindEndpointSlice, "a-x"): slice("10.1.0.1", "10.1.0.2")}),
		step("another endpoint in west", values{inCluster("west", kube.KindEndpointSlice, "a-x"): slice("10.2.0.1", "10.2.0.2")}),
		step("another address in west", values{inCluster("west", kube.KindService, "a"): addressed("10.97.0.1", 5)}),
		step("another endpoint in east, with addresses that differ", values{inCluster("east", kube.KindEndpointSlice, "a-x"): slice("10.1.0.1")}),
		step("another endpoint in west, with addresses that differ", values{inCluster("west", kube.KindEndpointSlice, "a-x"): slice("10.2.0.1")}),
		step("an older service of west with the address that the first has in east", values{inCluster("west", kube.KindService, "b"): addressed("10.96.0.1", 0)}),
		step("that service goes", values{inCluster("west", kube.KindService, "b"): nil}),
		step("headless in both", values{inCluster("east", kube.KindService, "a"): headless, inCluster("west", kube.KindService, "a"): headless}),
		step("the service of east goes", values{
			inCluster("east", kube.KindService, "a"): nil, inCluster("east", kube.KindEndpointSlice, "a-x"): nil,
			inCluster("west", kube.KindService, "a"): addressed("10.97.0.1", 5),
		}),
		step("the service of west goes", values{inCluster("west", kube.KindService, "a"): nil, inCluster("west", kube.KindEndpointSlice, "a-x"): nil}),
	}
}

// TestCostOfClusters: a change of an endpoint costs the same in each cluster, and in every mesh.
func TestCostOfClusters(t *testing.T) {
	same(t, "testdata/cost-clusters.txt", clusterChanges(), func(meshtest.Large) []*api.Object { return nil })
}

// TestClusters shows what proxies in three clusters are sent after each of the changes: what all of them have, and what differs. A
// proxy in "north" has no Service in its cluster.
func TestClusters(t *testing.T) {
	w := meshtest.New(t)
	clusters := []string{"east", "west", "north"}
	id := func(i int) string { return fmt.Sprintf("sidecar~10.9.0.%d~c-%d.other~other.svc.cluster.local", i, i) }
	for i, cluster := range clusters {
		w.Connect(meshtest.Node(t, id(i), fmt.Sprintf(`{"CLUSTER_ID": %q}`, cluster)))
	}
	var out strings.Builder
	for _, c := range clusterChanges() {
		c.do(w, meshtest.Large{})
		fmt.Fprintf(&out, "-- %s --\n", c.name)
		lines := map[string][]string{} // the clusters whose proxies have a line
		classes := map[string]bool{}
		for i, cluster := range clusters {
			class := w.Follow(id(i))
			classes[fmt.Sprint(class.Hash())] = true
			w.Check()
			state := w.State(class)
			meshtest.Validate(t, state)
			for line := range assignments(t, state) {
				lines[line] = append(lines[line], cluster)
			}
			for line := range domains(t, state) {
				lines[line] = append(lines[line], cluster)
			}
			for _, name := range meshtest.Names(state, resource.Listener) {
				line := "LDS " + name + leadsTo(t, state, name) + "\n"
				lines[line] = append(lines[line], cluster)
			}
		}
		fmt.Fprintf(&out, "%d classes\n", len(classes))
		for _, line := range slices.Sorted(maps.Keys(lines)) {
			if len(lines[line]) < len(clusters) {
				fmt.Fprintf(&out, "only in %s: ", strings.Join(lines[line], ", "))
			}
			out.WriteString(line)
		}
	}
	golden(t, "testdata/clusters.txt", out.String())
}

// leadsTo says to which of the clusters of Services a listener leads.
func leadsTo(t *testing.T, s *resource.State, name string) (to string) {
	r, _ := s.Get(resource.Listener, name)
	text := meshtest.YAML(t, r)
	for _, host := range []string{"a", "b"} {
		if strings.Contains(text, "||"+host+".shop.svc.cluster.local") {
			to += " to " + host
		}
	}
	return to
}

// TestClusterLocal shows which endpoints proxies in two clusters get of services that are local to each cluster, by default and by the
// settings of the mesh, and of others. The services have the same address in both clusters.
func TestClusterLocal(t *testing.T) {
	w := meshtest.New(t)
	v := values{}
	for i, cluster := range []string{"east", "west"} {
		for j, at := range []api.Key{{Namespace: "default", Name: "kubernetes"}, {Namespace: "kube-system", Name: "metrics"}, {Namespace: "shop", Name: "a"}} {
			at.Cluster, at.Kind = cluster, kube.KindService
			v[at] = addressed(fmt.Sprintf("10.96.0.%d", j+1), 1)
			slice := shopSlice(kube.SliceEndpoint{Address: fmt.Sprintf("10.%d.0.%d", i+1, j+1)})
			slice.Service = at.Name
			at.Kind = kube.KindEndpointSlice
			v[at] = slice
		}
	}
	w.Observe(v)
	ids := map[string]string{
		"east": "sidecar~10.9.0.1~c.other~other.svc.cluster.local", "west": "sidecar~10.9.0.2~d.other~other.svc.cluster.local",
		"west, with a Sidecar": "sidecar~10.9.0.3~e.scoped~scoped.svc.cluster.local", "west, a gateway": "router~10.9.0.4~f.other~other.svc.cluster.local",
		"west, without such a service": "sidecar~10.9.0.5~g.narrow~narrow.svc.cluster.local",
	}
	w.Apply(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: all, namespace: scoped}
spec: {egress: [{hosts: [default/*, shop/*]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: some, namespace: narrow}
spec: {egress: [{hosts: [shop/*]}]}
`)
	for name, id := range ids {
		cluster, _, _ := strings.Cut(name, ",")
		w.Connect(meshtest.Node(t, id, fmt.Sprintf(`{"CLUSTER_ID": %q}`, cluster)))
	}
	var out strings.Builder
	for _, step := range []struct{ name, mesh string }{
		{"by default", "{}"},
		{"the other way round", "serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*.shop.svc.cluster.local']}, " +
			"{settings: {clusterLocal: false}, hosts: [kubernetes.default.svc.cluster.local, '*.kube-system.svc.cluster.local']}]"},
		{"by default again", "{}"},
	} {
		w.Configure(step.mesh)
		fmt.Fprintf(&out, "-- %s --\n", step.name)
		for _, name := range slices.Sorted(maps.Keys(ids)) {
			class := w.Follow(ids[name])
			w.Check()
			fmt.Fprintf(&out, "%s (class of cluster %q)\n", name, class.Cluster)
			for line := range assignments(t, w.State(class)) {
				if strings.HasPrefix(line, "outbound|90|") {
					out.WriteString("  " + line)
				}
			}
		}
	}
	golden(t, "testdata/cluster-local.txt", out.String())
}
