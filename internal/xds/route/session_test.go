package route_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const sessionServices = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: cookie, namespace: shop, labels: {istio.io/persistent-session: my-cookie}}
spec:
  hosts: [cookie.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.1.1}, {address: 10.1.1.2, labels: {istio.io/draining: "true"}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: header, namespace: shop, labels: {istio.io/persistent-session-header: my-header}}
spec:
  hosts: [header.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.2.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: plain, namespace: shop}
spec:
  hosts: [plain.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.3.1}, {address: 10.1.3.2, labels: {istio.io/draining: "true"}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: plain, namespace: shop}
spec:
  hosts: [plain.test]
  http:
  - {match: [{uri: {prefix: /one}}], route: [{destination: {host: cookie.test}}]}
  - {match: [{uri: {prefix: /gone}}], directResponse: {status: 410}}
  - route: [{destination: {host: header.test}, weight: 50}, {destination: {host: plain.test}, weight: 50}]
`

// TestSessions: routes to services with sessions say how a request finds the endpoint of its session: the default route, the route of a rule and a share
// of one. Endpoints that drain stay in these clusters, which send them the requests of their sessions, and leave all others.
func TestSessions(t *testing.T) {
	s := sessionState(t, true)
	routes := yamlOf(t, s, resource.Route, "80")
	for part, want := range map[string]int{"envoy.http.stateful_session.cookie": 2, "name: my-cookie": 2, "path: /": 2, "envoy.http.stateful_session.header": 2, "name: my-header": 2} {
		if n := strings.Count(routes, part); n != want {
			t.Errorf("%q %d times in the routes, want %d:\n%s", part, n, want, routes)
		}
	}
	listeners := ""
	for r := range s.Types[resource.Listener].All() {
		text := meshtest.YAML(t, r)
		if r.Name() == "virtualInbound" && strings.Contains(text, "http.stateful_session") {
			t.Error("the inbound listener has the filter of sessions")
		}
		listeners += text
	}
	if !strings.Contains(listeners, "name: envoy.filters.http.stateful_session") {
		t.Error("no listener has the filter of sessions")
	}
	for host, want := range map[string][3]int{"cookie.test": {1, 2, 1}, "header.test": {1, 1, 0}, "plain.test": {0, 1, 0}} {
		cluster, endpoints := yamlOf(t, s, resource.Cluster, "outbound|80||"+host), yamlOf(t, s, resource.Endpoint, "outbound|80||"+host)
		got := [3]int{strings.Count(cluster, "override_host_status"), strings.Count(endpoints, "port_value"), strings.Count(endpoints, "health_status: DRAINING")}
		if got != want {
			t.Errorf("%s: clusters with states, endpoints, draining endpoints %v, want %v\n%s", host, got, want, endpoints)
		}
	}
}

// TestNoSessions: unless the control plane is set so, requests are balanced without sessions.
func TestNoSessions(t *testing.T) {
	s := sessionState(t, false)
	for _, typ := range []resource.Type{resource.Listener, resource.Route, resource.Cluster} {
		for r := range s.Types[typ].All() {
			if text := meshtest.YAML(t, r); strings.Contains(text, "http.stateful_session") || strings.Contains(text, "override_host_status") {
				t.Errorf("%s has something of sessions:\n%s", r.Name(), text)
			}
		}
	}
}

func sessionState(t *testing.T, on bool) *resource.State {
	t.Helper()
	w := meshtest.NewWith(t, meshtest.Options{Sessions: on})
	w.Apply(sessionServices)
	c := w.Connect(meshtest.Node(t, "sidecar~10.9.0.1~web-0.shop~shop.svc.cluster.local", "{}"))
	s := w.State(c)
	meshtest.Validate(t, s)
	w.Check()
	if envoy, err := meshtest.FindEnvoy(""); err == nil {
		meshtest.Accept(t, envoy, t.TempDir(), s)
	}
	return s
}

func yamlOf(t *testing.T, s *resource.State, typ resource.Type, name string) string {
	t.Helper()
	r, ok := s.Get(typ, name)
	if !ok {
		t.Fatalf("no %v %s", typ, name)
	}
	return meshtest.YAML(t, r)
}
