package listener_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestHTTP10: all proxies accept HTTP/1.0 if the control plane is set so, whatever their metadata say; else the proxies whose metadata ask for it.
func TestHTTP10(t *testing.T) {
	for _, c := range []struct {
		all      bool
		metadata string
		want     bool
	}{{false, "", false}, {false, `, "HTTP10": "1"`, true}, {true, "", true}, {true, `, "HTTP10": "0"`, true}} {
		w := meshtest.NewWith(t, meshtest.Options{HTTP10: c.all})
		w.Apply(http3Servers)
		for _, node := range []string{"router~10.10.0.1~gw-1.edge~edge.svc.cluster.local", "sidecar~10.10.0.2~web-1.apps~apps.svc.cluster.local"} {
			s := w.State(w.Connect(meshtest.Node(t, node, `{"LABELS": {"gw": "front"}`+c.metadata+`}`)))
			accepting := false
			for r := range s.Types[resource.Listener].All() {
				accepting = accepting || strings.Contains(meshtest.YAML(t, r), "accept_http_10: true")
			}
			if accepting != c.want {
				t.Errorf("all: %v, metadata %q: %s accepts HTTP/1.0: %v, want %v", c.all, c.metadata, node, accepting, c.want)
			}
		}
	}
}
