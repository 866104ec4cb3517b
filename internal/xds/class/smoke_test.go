package class_test

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const smoke = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  addresses: [10.99.0.1]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 9000, name: tcp, protocol: TCP}]
  location: MESH_INTERNAL
  resolution: STATIC
  endpoints:
  - address: 10.77.1.1
    labels: {version: v1}
  - address: 10.77.1.2
    labels: {version: v2}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - match: [{uri: {prefix: /v2}, headers: {x-user: {exact: jason}}}]
    route: [{destination: {host: reviews, subset: v2}}]
  - route:
    - {destination: {host: reviews, subset: v1}, weight: 90}
    - {destination: {host: reviews, subset: v2}, weight: 10}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews
  trafficPolicy: {connectionPool: {tcp: {maxConnections: 10}}}
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
`

func TestSmoke(t *testing.T) {
	w := meshtest.New(t)
	w.Apply(smoke)
	a := w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~web-0.shop~shop.svc.cluster.local", ""))
	b := w.Connect(meshtest.Node(t, "sidecar~10.77.1.1~r-0.shop~shop.svc.cluster.local", `{"INTERCEPTION_MODE":"NONE"}`))
	t.Logf("%+v\n%+v", a, b)
	w.Check()
	meshtest.Validate(t, w.State(a))
	meshtest.Validate(t, w.State(b))
	all := func(resource.Type, string) bool { return true }
	t.Log(meshtest.Print(t, w.State(a), all))
	t.Log(meshtest.Print(t, w.State(b), func(ty resource.Type, _ string) bool { return ty == resource.Listener }))
}
