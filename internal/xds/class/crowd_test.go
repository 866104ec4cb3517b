package class_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// However many services ask for one address, exported to all or to a namespace, no cell reads too much, and the oldest
// gets it.
func TestManyServicesAtOneAddress(t *testing.T) {
	w := meshtest.New(t)
	var config strings.Builder
	for i := range 60 {
		for ns, to := range map[string]string{"a": "*", "b": "."} {
			fmt.Fprintf(&config, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%[1]d, namespace: %[2]s, creationTimestamp: "2024-01-01T00:00:%02[1]dZ"}
spec:
  hosts: [s%[1]d.%[2]s.test]
  addresses: [10.9.9.9]
  exportTo: [%[3]q]
  resolution: STATIC
  ports: [{number: 900, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.77.1.2}]
`, i, ns, to)
		}
	}
	w.Load(config.String())
	for _, ns := range []string{"a", "b"} {
		state := w.State(w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~web-0."+ns+"~"+ns+".svc.cluster.local", "{}")))
		l, ok := state.Get(resource.Listener, "10.9.9.9_900")
		if !ok || len(l.Clusters()) != 1 || l.Clusters()[0] != "outbound|900||s0.a.test" {
			t.Errorf("connections from namespace %s go to %q", ns, l.Clusters())
		}
	}
	w.Check()
	for _, f := range w.Graph.Faults() {
		t.Errorf("cell failed: %+v", f)
	}
}
