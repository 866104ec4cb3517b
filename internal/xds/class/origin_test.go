package class_test

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A virtual host is made of a DestinationRule whose only effect on it is consistent hashing for the clients that the rule
// selects.
func TestOriginOfSelectedClient(t *testing.T) {
	w := meshtest.New(t)
	w.Load(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: seat, namespace: a}
spec:
  hosts: [seat.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.77.1.2}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: mine, namespace: a}
spec:
  host: seat.test
  workloadSelector: {matchLabels: {app: web}}
  trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-seat}}}
`)
	c := w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", `{"LABELS": {"app": "web"}}`))
	route, ok := w.State(c).Get(resource.Route, "80")
	if !ok {
		t.Fatal("there is no route configuration 80")
	}
	for piece := range route.Pieces().All() {
		for _, o := range w.Queries.Origin(w.Graph, c, resource.Route, "80", string(piece)) {
			if o.Name == "mine" {
				return
			}
		}
	}
	t.Error("no virtual host is made of the rule")
}
