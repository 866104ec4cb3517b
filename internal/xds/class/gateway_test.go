package class_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

const frontGateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: edge}
spec:
  selector: {gw: front}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [%s]}
  - {port: {number: 81, name: http81, protocol: HTTP}, hosts: ["*.other.org"]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: apps}
spec: {hosts: [a.org], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: %s}]}
`

// gatewayRoutes is a VirtualService with routes for a host at the gateways.
func gatewayRoutes(i int, path string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v%[1]d, namespace: apps}
spec:
  hosts: [h%[1]d.exam.com]
  gateways: [edge/front]
  http: [{match: [{uri: {prefix: %[2]s}}], route: [{destination: {host: a.org}}]}]
`, i, path)
}

// ownGateway is a Gateway for one host at the port of others.
func ownGateway(i int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: own, namespace: edge}
spec:
  selector: {gw: front}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [h%d.exam.com]}]
`, i)
}

// gatewayCosts returns the cells that run for each of some edits, with n VirtualServices and three replicas of a gateway.
func gatewayCosts(t *testing.T, n int) map[string]map[string]int {
	w := meshtest.New(t)
	list := []string{fmt.Sprintf(frontGateway, `"*.exam.com"`, "10.1.0.1")}
	for i := range n {
		list = append(list, gatewayRoutes(i, "/a"))
	}
	w.Apply(strings.Join(list, "---"))
	replica := func(i int) string {
		return fmt.Sprintf("router~10.0.0.%d~gw-%d.edge~edge.svc.cluster.local", i, i)
	}
	first := w.Connect(meshtest.Node(t, replica(1), `{"LABELS": {"gw": "front", "pod": "1"}}`))
	for i := 2; i < 4; i++ {
		if c := w.Connect(meshtest.Node(t, replica(i), fmt.Sprintf(`{"LABELS": {"gw": "front", "pod": "%d"}}`, i))); c != first {
			t.Errorf("replica %d has another class", i)
		}
	}
	out := map[string]map[string]int{}
	step := func(name string, edit func()) {
		w.Graph.Cost()
		edit()
		out[name] = maps.Clone(w.Graph.Cost())
	}
	step("path", func() { w.Apply(gatewayRoutes(4, "/b")) })
	step("comes", func() { w.Apply(gatewayRoutes(n, "/a")) })
	step("host of a server", func() { w.Apply(fmt.Sprintf(frontGateway, `"*.exam.com", new.org`, "10.1.0.1")) })
	step("own Gateway", func() {
		w.Apply(ownGateway(n+1) + "---" + strings.Replace(gatewayRoutes(n+1, "/a"), "edge/front", "edge/own", 1))
	})
	step("endpoint", func() { w.Apply(fmt.Sprintf(frontGateway, `"*.exam.com", new.org`, "10.1.0.2")) })
	w.Check()
	return out
}

// TestGatewayCost: an edit of a VirtualService runs the virtual host of its host, however many others there are. A server with one host
// more runs no virtual host, a Gateway more the virtual host of its host, and an endpoint nothing of the gateways. All replicas of a gateway are one class.
func TestGatewayCost(t *testing.T) {
	few, many := gatewayCosts(t, 10), gatewayCosts(t, 200)
	for _, name := range []string{"path", "comes", "own Gateway", "endpoint"} {
		if !maps.Equal(few[name], many[name]) {
			t.Errorf("%s: with 10 VirtualServices %v, with 200 %v", name, few[name], many[name])
		}
	}
	for name, want := range map[string]int{"path": 1, "comes": 1, "host of a server": 0, "own Gateway": 1, "endpoint": 0} {
		if got := many[name]["gatewayVirtualHost"]; got != want {
			t.Errorf("%s: %d virtual hosts run, want %d: %v", name, got, want, many[name])
		}
	}
	if got := many["path"]; got["gatewayListener"] != 0 || got["class"] != 0 {
		t.Errorf("an edit of a path runs listeners or classes: %v", got)
	}
}

// ingressAt is an Ingress with a path of a host of its own, and a certificate if secret is not empty.
func ingressAt(i int, path, secret string) string {
	tls := ""
	if secret != "" {
		tls = fmt.Sprintf("tls: [{hosts: [h%d.exam.com], secretName: %s}]", i, secret)
	}
	return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i%[1]d, namespace: apps, annotations: {kubernetes.io/ingress.class: istio}}
spec:
  %[3]s
  rules: [{host: h%[1]d.exam.com, http: {paths: [{path: %[2]s, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]
`, i, path, tls)
}

// ingressCosts returns the cells that run for each of some edits, with n Ingresses, each of them with a certificate, and two replicas of a gateway.
func ingressCosts(t *testing.T, n int) map[string]map[string]int {
	w := meshtest.New(t)
	list := []string{strings.Replace(fmt.Sprintf(frontGateway, `"*.exam.com"`, "10.1.0.1"), "hosts: [a.org]", "hosts: [a.apps.svc.cluster.local]", 1)}
	for i := range n {
		list = append(list, ingressAt(i, "/a", fmt.Sprintf("s%d", i)))
	}
	w.Apply(strings.Join(list, "---"))
	replica := func(i int) string {
		return fmt.Sprintf("router~10.0.0.%d~gw-%d.istio-system~istio-system.svc.cluster.local", i, i)
	}
	first := w.Connect(meshtest.Node(t, replica(1), `{"LABELS": {"istio": "ingressgateway", "pod": "1"}}`))
	if c := w.Connect(meshtest.Node(t, replica(2), `{"LABELS": {"istio": "ingressgateway", "pod": "2"}}`)); c != first {
		t.Error("the second replica has another class")
	}
	out := map[string]map[string]int{}
	step := func(name string, edit func()) {
		w.Graph.Cost()
		edit()
		out[name] = maps.Clone(w.Graph.Cost())
	}
	step("path", func() { w.Apply(ingressAt(4, "/b", "s4")) })
	step("comes without certificate", func() { w.Apply(ingressAt(n, "/a", "")) })
	step("gets a certificate", func() { w.Apply(ingressAt(n, "/a", "more")) })
	step("goes", func() { w.Delete(api.Key{Kind: ingress.Kind, Namespace: "apps", Name: fmt.Sprintf("i%d", n)}) })
	if n < 50 { // the naive evaluation repeats the plan for each certificate
		w.Check()
	}
	return out
}

// TestIngressCost: an edit of an Ingress runs the cells of its hosts, however many other Ingresses a gateway serves. Only a certificate changes
// the plan of the listeners.
func TestIngressCost(t *testing.T) {
	few, many := ingressCosts(t, 10), ingressCosts(t, 250)
	for _, name := range []string{"path", "comes without certificate"} {
		if !maps.Equal(few[name], many[name]) {
			t.Errorf("%s: with 10 Ingresses %v, with 250 %v", name, few[name], many[name])
		}
	}
	for _, name := range []string{"gets a certificate", "goes"} {
		if got := many[name]; got["gatewayVirtualHost"] > 2 || got["gatewayListener"] != 1 {
			t.Errorf("%s: runs %v; want one listener and the virtual hosts of the host", name, got)
		}
	}
	if got := many["path"]; got["gatewayVirtualHost"] != 2 || got["gatewayPlan"]+got["gatewayListener"] != 0 {
		t.Errorf("an edit of a path runs %v; want the virtual hosts of its host with and without TLS", got)
	}
	if got := many["comes without certificate"]; got["gatewayVirtualHost"] != 1 || got["gatewayPlan"]+got["gatewayListener"] != 0 {
		t.Errorf("an Ingress without certificate runs %v; want one virtual host", got)
	}
}
