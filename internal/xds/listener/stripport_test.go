package listener_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestStripHostPort: gateways remove the port from the Host of requests if the control plane is set so; sidecars never do.
func TestStripHostPort(t *testing.T) {
	for _, on := range []bool{false, true} {
		w := meshtest.NewWith(t, meshtest.Options{StripHostPort: on})
		w.Apply(http3Servers)
		stripping := func(node, metadata string) (n int) {
			s := w.State(w.Connect(meshtest.Node(t, node, metadata)))
			meshtest.Validate(t, s)
			for r := range s.Types[resource.Listener].All() {
				n += strings.Count(meshtest.YAML(t, r), "strip_any_host_port: true")
			}
			return n
		}
		if n := stripping("router~10.10.0.1~gw-1.edge~edge.svc.cluster.local", `{"LABELS": {"gw": "front"}}`); (n > 0) != on {
			t.Errorf("set: %v; %d connection managers of the gateway remove ports", on, n)
		}
		if n := stripping("sidecar~10.10.0.2~web-1.apps~apps.svc.cluster.local", "{}"); n > 0 {
			t.Errorf("set: %v; %d connection managers of a sidecar remove ports", on, n)
		}
	}
}
