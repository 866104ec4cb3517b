package listener_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const balancedMesh = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: apps}
spec:
  hosts: [web.com]
  addresses: [192.0.2.1]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 83, name: tcp, protocol: TCP}]
  resolution: STATIC
  endpoints: [{address: 10.10.0.2}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: own, namespace: apps}
spec:
  ingress: [{port: {number: 9090, name: http, protocol: HTTP}, bind: 10.10.0.2, captureMode: NONE}]
  egress: [{port: {number: 3128, name: proxy, protocol: HTTP_PROXY}, bind: 127.0.0.1, hosts: ["*/*"]}, {hosts: ["*/*"]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {gw: front}
  servers:
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: front}}
`

// TestExactBalance: the listeners of a direction give each connection to the worker with the fewest if the metadata of the proxy ask for it; the listener of
// redirected outbound connections never does, and neither does one for datagrams. A router has outbound listeners only.
func TestExactBalance(t *testing.T) {
	const sidecar, router = "sidecar~10.10.0.2~web-1.apps~apps.svc.cluster.local", "router~10.10.0.1~gw-1.edge~edge.svc.cluster.local"
	for _, c := range []struct{ node, metadata, balanced, others string }{
		{sidecar, `{}`, "", "0.0.0.0_80 10.10.0.2_9090 127.0.0.1_3128 192.0.2.1_83 virtualInbound virtualOutbound"},
		{sidecar, `{"INBOUND_LISTENER_EXACT_BALANCE": "true"}`, "10.10.0.2_9090 virtualInbound", "0.0.0.0_80 127.0.0.1_3128 192.0.2.1_83 virtualOutbound"},
		{sidecar, `{"OUTBOUND_LISTENER_EXACT_BALANCE": "true"}`, "0.0.0.0_80 127.0.0.1_3128 192.0.2.1_83", "10.10.0.2_9090 virtualInbound virtualOutbound"},
		{sidecar, `{"OUTBOUND_LISTENER_EXACT_BALANCE": "false"}`, "", "0.0.0.0_80 10.10.0.2_9090 127.0.0.1_3128 192.0.2.1_83 virtualInbound virtualOutbound"},
		{router, `{"LABELS": {"gw": "front"}, "INBOUND_LISTENER_EXACT_BALANCE": "true"}`, "", "0.0.0.0_443"},
		{router, `{"LABELS": {"gw": "front"}, "OUTBOUND_LISTENER_EXACT_BALANCE": "true"}`, "0.0.0.0_443", ""},
	} {
		w := meshtest.NewWith(t, meshtest.Options{})
		w.Apply(balancedMesh)
		s := w.State(w.Connect(meshtest.Node(t, c.node, c.metadata)))
		named := map[bool]map[string]bool{true: {}, false: {}}
		for r := range s.Types[resource.Listener].All() {
			named[strings.Contains(meshtest.YAML(t, r), "connection_balance_config:\n  exact_balance: {}")][r.Name()] = true
		}
		for is, want := range map[bool]string{true: c.balanced, false: c.others} {
			if got := strings.Join(slices.Sorted(maps.Keys(named[is])), " "); got != want {
				t.Errorf("%.7s with %s: balanced %v: %s; want %s", c.node, c.metadata, is, got, want)
			}
		}
	}
}
