package gateway_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

const class = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: ours}
spec: {controller: %s}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec: {hosts: [a.shop.svc.cluster.local], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: %s}]}
`

// object returns an Ingress with a path and a certificate for a host, and a rule for the host that it shares with its neighbour.
func object(i int, path string) string {
	return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i%[1]d, namespace: shop}
spec:
  ingressClassName: ours
  tls: [{hosts: [h%[1]d.example.com], secretName: s%[1]d}]
  rules:
  - {host: h%[1]d.example.com, http: {paths: [{path: %[3]s, pathType: Prefix, backend: {service: {name: a, port: {name: http}}}}]}}
  - {host: shared%[2]d.example.com, http: {paths: [{path: /%[1]d, pathType: Prefix, backend: {service: {name: a, port: {name: http}}}}]}}
`, i, i/2, path)
}

// costs returns the cells that run for each of some edits, with n Ingresses.
func costs(t *testing.T, n int) map[string]map[string]int {
	w := meshtest.New(t)
	list := []string{fmt.Sprintf(class, ingress.Controller, "10.1.0.1")}
	for i := range n {
		list = append(list, object(i, "/a"))
	}
	w.Apply(strings.Join(list, "---"))
	out := map[string]map[string]int{}
	step := func(name string, edit func()) {
		w.Graph.Cost()
		edit()
		out[name] = maps.Clone(w.Graph.Cost())
	}
	step("path", func() { w.Apply(object(4, "/b")) })
	step("the same", func() { w.Apply(object(4, "/b")) })
	step("endpoint", func() { w.Apply(fmt.Sprintf(class, ingress.Controller, "10.1.0.2")) })
	step("comes", func() { w.Apply(object(n, "/a")) })
	step("goes", func() { w.Delete(api.Key{Kind: ingress.Kind, Namespace: "shop", Name: fmt.Sprintf("i%d", n)}) })
	step("certificate", func() { w.Apply(strings.Replace(object(4, "/b"), "secretName: s4", "secretName: other", 1)) })
	w.Check()
	return out
}

// TestCost: an edit of an Ingress runs the cells of its hosts, however many others there are. An edit of a path runs
// only the cell of the host with the path.
func TestCost(t *testing.T) {
	few, many := costs(t, 10), costs(t, 200)
	for name, cost := range few {
		if !maps.Equal(cost, many[name]) {
			t.Errorf("%s: with 10 Ingresses %v, with 200 %v", name, cost, many[name])
		}
	}
	path := many["path"]
	if path["gatewayHost"] != 1 || path["gatewayParts"] != 2 {
		t.Errorf("an edit of a path runs %v; want the two parts of its object, and the host", path)
	}
	for _, name := range []string{"the same", "endpoint"} {
		if got := many[name]; got["gatewayHost"]+got["gatewayParts"]+got["gatewayCertificates"] != 0 {
			t.Errorf("%s: runs %v", name, got)
		}
	}
	if got := many["comes"]; got["gatewayHost"] != 2 {
		t.Errorf("a new object runs %v; want its two hosts", got)
	}
}
