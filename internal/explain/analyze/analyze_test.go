package analyze_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

const service = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.svc.mesh.local]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.0.1}]
`

const routes = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - route: [{destination: {host: web}}]
  - match: [{uri: {prefix: /never}}]
    route:
    - destination: {host: missing}
`

// texts returns problems as text, one each.
func texts(problems []api.Problem) []string {
	list := make([]string, 0, len(problems))
	for _, p := range problems {
		list = append(list, p.String())
	}
	return list
}

// want fails unless the problems begin with these texts, in this order.
func want(t *testing.T, got []api.Problem, begin ...string) {
	t.Helper()
	list := texts(got)
	if !slices.EqualFunc(list, begin, strings.HasPrefix) {
		t.Errorf("got  %q\nwant %q", list, begin)
	}
}

// TestOrder: problems are ordered by file and line, whatever the order of the files, and problems of relations between objects have a line.
func TestOrder(t *testing.T) {
	a := analyze.New()
	a.File("routes.yaml", []byte(routes))
	a.File("broken.yaml", []byte("kind: [\n"))
	a.File("services.yaml", []byte(service))
	a.Unreadable("secret.yaml", errors.New("permission denied"))
	if a.Files != 3 || a.Objects != 2 {
		t.Errorf("%d files and %d objects, want 3 and 2", a.Files, a.Objects)
	}
	want(t, a.Problems(), "broken.yaml:1: error:", "routes.yaml:8: warning: VirtualService shop/web: spec.http[1]", "secret.yaml: error: permission denied")
	want(t, a.AllProblems("mesh.local"),
		"broken.yaml:1: error:", "routes.yaml:8: warning: VirtualService shop/web: spec.http[1]: ",
		`routes.yaml:10: error: VirtualService shop/web: spec.http[1].route[0].destination.host: there is no service "missing.shop.svc.mesh.local"`,
		"secret.yaml: error: permission denied")
}

// TestDuplicate: of two documents of one object the first is in force, and the second has the problem.
func TestDuplicate(t *testing.T) {
	a := analyze.New()
	a.File("a.yaml", []byte(service))
	a.File("b.yaml", []byte(strings.Replace(service, "number: 80", "number: 81", 1)))
	a.File("routes.yaml", []byte(strings.Replace(routes, "{host: missing}", "{host: web, port: {number: 80}}", 1)))
	want(t, a.AllProblems("mesh.local"),
		"b.yaml:1: error: ServiceEntry shop/web: metadata.name: this object was declared already at a.yaml:1", "routes.yaml:8: warning:")
}

// TestDuplicateAlone: documents that are checked each alone may belong to several clusters, so two of one object are no mistake.
func TestDuplicateAlone(t *testing.T) {
	a := analyze.New()
	a.File("a.yaml", []byte(service))
	a.File("b.yaml", []byte(service))
	if found := a.Problems(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	want(t, a.AllProblems("mesh.local"), "b.yaml:1: error: ServiceEntry shop/web: metadata.name: this object was declared already at a.yaml:1")
}

// TestMesh: the mesh configuration decides what objects mean; one that is not valid changes nothing.
func TestMesh(t *testing.T) {
	a := analyze.New()
	a.File("service.yaml", []byte(service))
	a.File("routes.yaml", []byte(strings.NewReplacer("namespace: shop", "namespace: bank", "hosts: [web]", "hosts: [web.shop.svc.mesh.local]",
		"{host: web}", "{host: web.shop.svc.mesh.local}", "{host: missing}", "{host: web.shop.svc.mesh.local}").Replace(routes)))
	want(t, a.AllProblems("mesh.local"), "routes.yaml:5: info:", "routes.yaml:8: warning:")
	a.Mesh("mesh.yaml", []byte("defaultServiceExportTo: ['.']\n"))
	a.Mesh("broken.yaml", []byte("connectTimeout: never\n"))
	list := texts(a.AllProblems("mesh.local"))
	if n := len(list); n < 3 || !strings.HasPrefix(list[0], "broken.yaml:1: error: MeshConfig: connectTimeout") ||
		!strings.Contains(strings.Join(list, "\n"), `is not exported to namespace "bank"`) {
		t.Errorf("got %q", list)
	}
}

// TestNetworks: a file of networks has problems of its own.
func TestNetworks(t *testing.T) {
	a := analyze.New()
	a.Networks("good.yaml", []byte("networks: {west: {endpoints: [{fromCidr: 10.0.0.0/8}]}}\n"))
	want(t, a.Problems())
	a.Networks("bad.yaml", []byte("networks: {west: {gateways: [{address: 10.0.0.1, port: 70000}]}}\n"))
	want(t, a.Problems(), "bad.yaml:1: error: MeshNetworks: networks[west].gateways[0].port:")
}

// TestGatewayNames: nothing looks up the host name of a gateway into a network here, so it has no problem.
func TestGatewayNames(t *testing.T) {
	a := analyze.New()
	a.Networks("networks.yaml", []byte("networks: {west: {endpoints: [{fromRegistry: west}], gateways: [{address: gw.example.com, port: 15443}]}}\n"))
	want(t, a.AllProblems("mesh.local"))
}

// TestGatewaySelector: a Gateway is served by a workload of any namespace, also one that is a template in a file.
func TestGatewaySelector(t *testing.T) {
	const gateway = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {selector: {istio: front}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
`
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: front, namespace: edge}
spec:
  selector: {matchLabels: {istio: front}}
  template: {metadata: {labels: {istio: front}}, spec: {containers: [{name: istio-proxy, image: auto}]}}
`
	a := analyze.New()
	a.File("gateway.yaml", []byte(gateway))
	want(t, a.AllProblems("mesh.local"), "gateway.yaml:4: warning: Gateway shop/front: spec.selector: no workload is known that has the labels istio=front")
	a.File("front.yaml", []byte(deployment))
	want(t, a.AllProblems("mesh.local"), "gateway.yaml:4: info: Gateway shop/front: spec.servers: no VirtualService names this Gateway")
}
