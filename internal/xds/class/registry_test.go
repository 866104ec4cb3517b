package class_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// registered is a service of a registry, and the values that put it in force.
func registered(order int, host string, spec mesh.Service, addresses ...string) map[api.Key]kube.Value {
	s := &registry.Service{Order: order, Named: host, ExportTo: []string{"*"}, Scale: 1, Spec: &spec}
	spec.Name, spec.Namespace, spec.Resolution = host, "registries", mesh.Static
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, mesh.Endpoint{Address: a, Weight: 1})
	}
	return map[api.Key]kube.Value{registry.ServiceKey(fmt.Sprintf("r%d", order), "registries", host): s}
}

func onePort(protocol mesh.Protocol, port uint32) mesh.Service {
	return mesh.Service{Ports: []mesh.Port{{Number: port, Name: "port", Protocol: protocol}}}
}

func dubboPort(i mesh.DubboInterface, port uint32) mesh.Service {
	s := onePort(mesh.Dubbo, port)
	s.Dubbo = &i
	return s
}

// TestCostOfRegistries: a change of instances costs the assignment of their host, and a migration no more.
func TestCostOfRegistries(t *testing.T) {
	observe := func(values map[api.Key]kube.Value) func(*meshtest.World, meshtest.Large) {
		return func(w *meshtest.World, _ meshtest.Large) { w.Observe(values) }
	}
	const host = "web.service.consul"
	migration := func(share uint32) map[api.Key]kube.Value {
		return map[api.Key]kube.Value{registry.MigrationKey(host): &registry.Migration{Weights: map[string]uint32{"r0": 100 - share, "r1": share}}}
	}
	same(t, "testdata/cost-registries.txt", []change{
		{"service added", observe(registered(0, host, onePort(mesh.HTTP, 8080), "192.0.2.1"))},
		{"instance", observe(registered(0, host, onePort(mesh.HTTP, 8080), "192.0.2.1", "192.0.2.2"))},
		{"another registry has the host", observe(registered(1, host, onePort(mesh.HTTP, 8080), "192.0.2.3"))},
		{"instance of the other registry", observe(registered(1, host, onePort(mesh.HTTP, 8080), "192.0.2.4"))},
		{"migration begins", observe(migration(10))},
		{"migration goes on", observe(migration(50))},
		{"interface of Dubbo added", observe(registered(0, "greeter.dubbo", dubboPort(mesh.DubboInterface{Interface: "Greeter"}, 20880), "192.0.2.1"))},
		{"instance of an interface", observe(registered(0, "greeter.dubbo", dubboPort(mesh.DubboInterface{Interface: "Greeter"}, 20880), "192.0.2.2"))},
	}, func(meshtest.Large) []*api.Object { return nil })
}

// TestDubbo holds the listener for ports with the protocol of Dubbo: all interfaces of a port are in one, unless another protocol has the port,
// too.
func TestDubbo(t *testing.T) {
	w := meshtest.New(t)
	c := w.Connect(meshtest.Node(t, "sidecar~10.9.9.1~web.shop~shop.svc.cluster.local", ""))
	w.Observe(registered(0, "greeter-blue-1.dubbo", dubboPort(mesh.DubboInterface{Interface: "com.acme.Greeter", Group: "Blue", Version: "1.0.0"}, 20880), "192.0.2.1"))
	w.Observe(registered(0, "orders.dubbo", dubboPort(mesh.DubboInterface{Interface: "com.acme.Orders"}, 20880), "192.0.2.2"))
	w.Check()
	listener := func() string {
		return meshtest.Print(t, w.State(c), func(typ resource.Type, name string) bool { return typ == resource.Listener && name == "0.0.0.0_20880" })
	}
	for _, want := range []string{
		"envoy.filters.network.dubbo_proxy", "interface: com.acme.Greeter", "group: Blue", "version: 1.0.0", "outbound|20880||greeter-blue-1.dubbo",
		"interface: com.acme.Orders", "outbound|20880||orders.dubbo", "envoy.filters.dubbo.router",
	} {
		if got := listener(); !strings.Contains(got, want) {
			t.Fatalf("the listener lacks %s:\n%s", want, got)
		}
	}
	// A service without a group or version takes calls without these only, and is behind the others.
	w.Observe(registered(0, "greeter.dubbo", dubboPort(mesh.DubboInterface{Interface: "com.acme.Greeter"}, 20880), "192.0.2.4"))
	w.Check()
	text := listener()
	plain, blue := strings.Index(text, "outbound|20880||greeter.dubbo"), strings.Index(text, "outbound|20880||greeter-blue-1.dubbo")
	if plain < blue || strings.Count(text, `regex: (0\.0\.0)?`) != 2 || strings.Count(text, "name: group") != 2 {
		t.Errorf("calls of any group or version reach a service without:\n%s", text)
	}
	w.Observe(registered(0, "db.service.consul", onePort(mesh.TCP, 20880), "192.0.2.3"))
	w.Check()
	if got := listener(); strings.Contains(got, "dubbo_proxy") || !strings.Contains(got, "tcp_proxy") {
		t.Errorf("beside another protocol the port is not TCP:\n%s", got)
	}
}

// TestDubboRoutes: rules for HTTP route calls of Dubbo by method, attachments and weights, in their order; the rest goes to the service. What Envoy
// cannot do has a Problem, and a match that needs more than a call has takes no calls.
func TestDubboRoutes(t *testing.T) {
	w := meshtest.New(t)
	c := w.Connect(meshtest.Node(t, "sidecar~10.9.9.1~web.shop~shop.svc.cluster.local", ""))
	w.Observe(registered(0, "greeter.dubbo", dubboPort(mesh.DubboInterface{Interface: "com.acme.Greeter"}, 20880), "192.0.2.1"))
	w.Apply(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: greeter, namespace: registries}
spec:
  hosts: [greeter.dubbo]
  http:
  - match:
    - {uri: {exact: /com.acme.Greeter/Part}}
    - {uri: {prefix: /com.acme.Greeter/Gre}, headers: {User: {exact: jason}}, withoutHeaders: {vip: {}}}
    - {uri: {exact: /com.acme.Other/Part}}
    - {uri: {regex: ".*"}}
    - {queryParams: {a: {exact: b}}}
    route: [{destination: {host: greeter.dubbo, subset: first}}]
    timeout: 1s
  - match: [{port: 99}]
    route: [{destination: {host: greeter.dubbo, subset: never}}]
  - match: [{headers: {tag: {regex: "a|b"}}}]
    route:
    - {destination: {host: greeter.dubbo, subset: a}, weight: 80}
    - {destination: {host: greeter.dubbo, subset: b}, weight: 20}
`)
	w.Check()
	text := meshtest.Print(t, w.State(c), func(typ resource.Type, name string) bool { return typ == resource.Listener && name == "0.0.0.0_20880" })
	at := 0
	for _, want := range []string{
		"exact: Part", "outbound|20880|first|greeter.dubbo", "name: user", "exact: jason", "invert_match: true", "name: vip", "prefix: Gre", "outbound|20880|first|greeter.dubbo",
		"name: tag", "regex: a|b", "outbound|20880|a|greeter.dubbo", "weight: 80", "outbound|20880|b|greeter.dubbo", "weight: 20", "outbound|20880||greeter.dubbo",
	} {
		next := strings.Index(text[at:], want)
		if next < 0 {
			t.Fatalf("the listener lacks %q behind what comes before it:\n%s", want, text)
		}
		at += next
	}
	if strings.Contains(text, "never") || strings.Count(text, "|first|") != 2 {
		t.Errorf("a match that cannot apply has a route:\n%s", text)
	}
	problems := slices.DeleteFunc(w.Problems(), func(line string) bool {
		return !strings.Contains(line, "spec.http[0].match") && !strings.Contains(line, "spec.http[0].timeout")
	})
	all := strings.Join(problems, "\n")
	for _, field := range []string{"http[0].match[2].uri: ", "http[0].match[3].uri.regex: ", "http[0].match[4].queryParams: ", "http[0].timeout: "} {
		if !strings.Contains(all, field) {
			t.Errorf("no problem is about %s:\n%s", field, all)
		}
	}
	if len(problems) != 4 {
		t.Errorf("%d problems:\n%s", len(problems), all)
	}
}
