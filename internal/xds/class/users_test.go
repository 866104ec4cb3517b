package class_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestUsers: the clusters and listeners that are made of an object are found, those for what the proxy itself serves among them, and no others; also if an
// EnvoyFilter patches them.
func TestUsers(t *testing.T) {
	for name, patch := range map[string]string{"plain": "", "patched": `---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: all, namespace: istio-system}
spec:
  configPatches:
  - {applyTo: CLUSTER, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 65536}}}
  - {applyTo: LISTENER, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 65536}}}
`} {
		t.Run(name, func(t *testing.T) { usersWith(t, patch) })
	}
}

func usersWith(t *testing.T, patch string) {
	w := meshtest.New(t)
	entry := func(name, address, port string) string {
		return strings.NewReplacer("NAME", name, "ADDRESS", address, "PORT", port).Replace(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: NAME, namespace: a}
spec:
  hosts: [NAME.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: PORT, name: main, protocol: TCP}]
  endpoints: [{address: ADDRESS}]
`)
	}
	w.Load(entry("own", "10.1.1.1", "81") + entry("other", "10.1.1.2", "82") + patch)
	node := meshtest.Node(t, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", `{"INTERCEPTION_MODE": "NONE"}`)
	w.Queries.Class.Observe(node.ID, func(proxy.Class, bool) {}) // as the loop does for each connection
	c := w.Connect(node)
	for name, want := range map[string]string{
		"own":   "CDS inbound|81||, CDS outbound|81||own.test, LDS 10.1.1.1_81, LDS 127.0.0.1_81",
		"other": "CDS outbound|82||other.test, LDS 127.0.0.1_82",
	} {
		rows, _, ok := w.Tables.RowsOf(api.Key{Kind: api.KindServiceEntry, Namespace: "a", Name: name})
		users := w.Queries.UsersOf(w.Graph, rows)
		if !ok || !users.Class(c) || users.Class(proxy.Class{}) {
			t.Errorf("%s: the classes that need it are wrong", name)
		}
		got := map[string]bool{}
		for _, typ := range []resource.Type{resource.Cluster, resource.Listener} {
			for _, layer := range w.State(c).Types[typ] {
				for n := range layer.All() {
					if users.Resource(node.ID, c, typ, string(n)) {
						got[typ.String()+" "+string(n)] = true
					}
				}
			}
		}
		if all := strings.Join(slices.Sorted(maps.Keys(got)), ", "); all != want {
			t.Errorf("%s: %s, want %s", name, all, want)
		}
	}
}
