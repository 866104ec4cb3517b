package class_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// routedMesh is a Gateway with servers of every kind, and services to which no gateway routes.
const routedMesh = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: edge}
spec:
  selector: {gw: front}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*"]}
  - {port: {number: 8443, name: tls, protocol: TLS}, hosts: ["*"], tls: {mode: PASSTHROUGH}}
`

// routedService is a service with two ports and a subset.
func routedService(name string) string {
	return strings.ReplaceAll(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: NAME, namespace: apps}
spec:
  hosts: [NAME.org]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.1.0.1, labels: {version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: NAME, namespace: apps}
spec: {host: NAME.org, subsets: [{name: v1, labels: {version: v1}}]}
`, "NAME", name)
}

// routedBy is a VirtualService of the gateway with some rules.
func routedBy(rules string) string {
	return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: vs, namespace: apps}\nspec:\n  hosts: [h.exam.com]\n  gateways: [edge/front]\n  " + rules
}

const routedNode = "router~10.0.0.1~gw-0.edge~edge.svc.cluster.local"

// newRouted is a mesh with the services a to h and a gateway that has the clusters only of the services to which it routes.
func newRouted(t *testing.T, o meshtest.Options, labels string) (*meshtest.World, proxy.Class) {
	o.FilterGatewayClusters = true
	w := meshtest.NewWith(t, o)
	list := []string{routedMesh}
	for name := range strings.SplitSeq("abcdefgh", "") {
		list = append(list, routedService(name))
	}
	w.Apply(strings.Join(list, "---"))
	return w, w.Connect(meshtest.Node(t, routedNode, labels))
}

const routedLabels = `{"LABELS": {"gw": "front"}}`

// routedHosts returns the hosts of the clusters of a class, each once. A host without all of its clusters has a remark.
func routedHosts(w *meshtest.World, c proxy.Class) string {
	count := map[string]int{}
	for of := range w.State(c).Types[resource.Cluster].All() {
		if part := strings.Split(of.Name(), "|"); len(part) == 4 {
			count[part[3]]++
		}
	}
	var list []string
	for _, host := range slices.Sorted(maps.Keys(count)) {
		if host = strings.TrimSuffix(host, ".org"); count[host+".org"] != 4 {
			host += fmt.Sprintf(" with %d clusters", count[host+".org"])
		}
		list = append(list, host)
	}
	return strings.Join(list, " ")
}

// TestRoutedClusters: a gateway has all clusters of the services to which its routes lead, and no others of services. They come and go with the
// object that has the route.
func TestRoutedClusters(t *testing.T) {
	for name, c := range map[string]struct{ object, want string }{
		"route":       {routedBy("http: [{route: [{destination: {host: a.org}}]}]"), "a"},
		"subset":      {routedBy("http: [{route: [{destination: {host: a.org, subset: v1}}]}]"), "a"},
		"split":       {routedBy("http: [{route: [{destination: {host: a.org}, weight: 100}, {destination: {host: b.org}, weight: 0}]}]"), "a b"},
		"mirror":      {routedBy("http: [{route: [{destination: {host: a.org}}], mirror: {host: b.org}}]"), "a b"},
		"mirrors":     {routedBy("http: [{route: [{destination: {host: a.org}}], mirrors: [{destination: {host: c.org}}]}]"), "a c"},
		"TCP":         {routedBy("tcp: [{route: [{destination: {host: d.org, port: {number: 90}}}]}]"), "d"},
		"passthrough": {routedBy("tls: [{match: [{sniHosts: [h.exam.com]}], route: [{destination: {host: e.org}}]}]"), "e"},
		"delegate": {routedBy("http: [{match: [{uri: {prefix: /a}}], delegate: {name: more, namespace: apps}}, {route: [{destination: {host: a.org}}]}]") + `
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: more, namespace: apps}
spec: {http: [{route: [{destination: {host: f.org}}]}]}
`, "a f"},
		"no service":      {routedBy("http: [{route: [{destination: {host: nothing.org}}]}]"), ""},
		"another gateway": {strings.Replace(routedBy("http: [{route: [{destination: {host: a.org}}]}]"), "edge/front", "edge/other", 1), ""},
		"the mesh only":   {strings.Replace(routedBy("http: [{route: [{destination: {host: a.org}}]}]"), "edge/front", "mesh", 1), ""},
		"unseen":          {routedBy("exportTo: [.]\n  http: [{route: [{destination: {host: a.org}}]}]"), ""},
		"for the edge":    {routedBy("exportTo: [edge]\n  http: [{route: [{destination: {host: a.org}}]}]"), "a"},
	} {
		t.Run(name, func(t *testing.T) {
			w, class := newRouted(t, meshtest.Options{}, routedLabels)
			if got := routedHosts(w, class); got != "" {
				t.Errorf("without a route the gateway has clusters of %s", got)
			}
			for range 2 {
				w.Apply(c.object)
				if got := routedHosts(w, class); got != c.want {
					t.Errorf("the gateway has clusters of %q, want %q", got, c.want)
				}
				w.Check()
				w.Delete(api.Key{Kind: api.KindVirtualService, Namespace: "apps", Name: "vs"})
				if got := routedHosts(w, class); got != "" {
					t.Errorf("after the removal of the route the gateway has clusters of %s", got)
				}
			}
		})
	}
}

// TestRoutedIngress: a gateway has the clusters of the backends of Ingresses, the default one included.
func TestRoutedIngress(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{FilterGatewayClusters: true})
	service := func(name string) string {
		return strings.ReplaceAll(routedService(name), name+".org", name+".apps.svc.cluster.local")
	}
	w.Apply(strings.Join([]string{service("a"), service("b"), service("c")}, "---"))
	c := w.Connect(meshtest.Node(t, "router~10.0.0.1~gw-0.istio-system~istio-system.svc.cluster.local", `{"LABELS": {"istio": "ingressgateway"}}`))
	has := func(want string) {
		t.Helper()
		if got := strings.ReplaceAll(routedHosts(w, c), ".apps.svc.cluster.local with 0 clusters", ""); got != want {
			t.Errorf("the gateway has clusters of %q, want %q", got, want)
		}
		w.Check()
	}
	has("")
	w.Apply(ingressAt(1, "/a", ""))
	has("a")
	w.Apply(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i2, namespace: apps, annotations: {kubernetes.io/ingress.class: istio}}
spec: {defaultBackend: {service: {name: b, port: {number: 80}}}}
`)
	has("a b")
	w.Apply(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i2, namespace: apps, annotations: {kubernetes.io/ingress.class: another}}
spec: {defaultBackend: {service: {name: b, port: {number: 80}}}}
`)
	has("a")
}

// TestRoutedAlias: a route to another name of a service needs the clusters of the service.
func TestRoutedAlias(t *testing.T) {
	w, class := newRouted(t, meshtest.Options{ClusterID: testCluster}, routedLabels)
	w.Observe(values{{Kind: kube.KindService, Namespace: "apps", Name: "alias", Cluster: testCluster}: &kube.Service{
		Created: 1, Type: kube.ExternalName, ExternalName: "g.org", Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP}},
	}})
	w.Apply(routedBy("http: [{route: [{destination: {host: alias}}]}]"))
	if got := routedHosts(w, class); got != "g" {
		t.Errorf("the gateway has clusters of %q, want g", got)
	}
	w.Check()
}

// TestRoutedProviders: a gateway has the clusters of the services of all extension providers, and of the servers from which it fetches keys.
func TestRoutedProviders(t *testing.T) {
	w, class := newRouted(t, meshtest.Options{KeyFetcher: mesh.ProxyFetches}, routedLabels)
	w.Configure(`
extensionProviders:
- {name: ask, envoyExtAuthzGrpc: {service: apps/A.org, port: 80}}
- {name: ask-http, envoyExtAuthzHttp: {service: b.org, port: 80}}
- {name: log, envoyOtelAls: {service: c.org, port: 80}}
- {name: trace, zipkin: {service: apps/d.org, port: 80}}
- {name: secrets, sds: {name: secrets, service: apps/H.org, port: 80}}
- {name: file, envoyFileAccessLog: {path: /dev/stdout}}
`)
	w.Apply(`
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: keys, namespace: edge}
spec: {jwtRules: [{issuer: e, jwksUri: "http://E.org/keys"}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: keys, namespace: apps}
spec: {jwtRules: [{issuer: f, jwksUri: "http://f.org/keys"}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: keys, namespace: istio-system}
spec: {selector: {matchLabels: {gw: front}}, jwtRules: [{issuer: g, jwksUri: "http://g.org:90/keys"}]}
`)
	if got := routedHosts(w, class); got != "a b c d e g h" {
		t.Errorf("the gateway has clusters of %q, want a b c d e g h", got)
	}
	w.Check()
}

// TestRoutedPassing: a gateway with a server that forwards TLS of the mesh has all clusters, as long as it has the server. Sidecars have all anyway.
func TestRoutedPassing(t *testing.T) {
	w, class := newRouted(t, meshtest.Options{}, routedLabels)
	sidecar := w.Connect(meshtest.Node(t, "sidecar~10.0.0.2~app.apps~apps.svc.cluster.local", ""))
	has := func(want string) {
		t.Helper()
		if got := routedHosts(w, class); got != want {
			t.Errorf("the gateway has clusters of %q, want %q", got, want)
		}
		w.Check()
	}
	has("")
	w.Apply(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: east, namespace: edge}
spec:
  selector: {gw: front}
  servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: ["*"], tls: {mode: AUTO_PASSTHROUGH}}]
`)
	has("a b c d e f g h")
	w.Delete(api.Key{Kind: api.KindGateway, Namespace: "edge", Name: "east"})
	has("")
	if got := routedHosts(w, sidecar); got != "a b c d e f g h" {
		t.Errorf("the sidecar has clusters of %q", got)
	}
}

// TestRoutedPatches: patches of clusters apply to the clusters that a gateway has.
func TestRoutedPatches(t *testing.T) {
	w, class := newRouted(t, meshtest.Options{}, routedLabels)
	w.Apply(routedBy("http: [{route: [{destination: {host: a.org}}]}]") + `
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: timeout, namespace: edge}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {context: GATEWAY, cluster: {service: a.org}}
    patch: {operation: MERGE, value: {connect_timeout: 77s}}
  - applyTo: CLUSTER
    match: {context: GATEWAY, cluster: {service: b.org}}
    patch: {operation: MERGE, value: {connect_timeout: 77s}}
`)
	if got := routedHosts(w, class); got != "a" {
		t.Errorf("the gateway has clusters of %q, want a", got)
	}
	c, _ := w.State(class).Get(resource.Cluster, "outbound|80||a.org")
	if m, err := c.Proto(); err != nil || m.(*clusterv3.Cluster).ConnectTimeout.GetSeconds() != 77 {
		t.Errorf("the cluster is not patched: %v, %v", m, err)
	}
	w.Check()
}

// routedCosts returns the cells that run for each of some edits, with n services to which a gateway routes and as many to which it does not.
func routedCosts(t *testing.T, n int, only bool) map[string]map[string]int {
	w := meshtest.NewWith(t, meshtest.Options{FilterGatewayClusters: only})
	list := []string{fmt.Sprintf(frontGateway, `"*.exam.com"`, "10.1.0.1")}
	rule := func(i int, host string) string {
		return strings.Replace(gatewayRoutes(i, "/a"), "host: a.org", "host: "+host, 1)
	}
	for i := range n {
		list = append(list, routedService(fmt.Sprintf("r%d", i)), routedService(fmt.Sprintf("other%d", i)), rule(i, fmt.Sprintf("r%d.org", i)))
	}
	w.Apply(strings.Join(list, "---"))
	w.Connect(meshtest.Node(t, routedNode, routedLabels))
	out := map[string]map[string]int{}
	step := func(name string, edit func()) {
		w.Graph.Cost()
		edit()
		out[name] = maps.Clone(w.Graph.Cost())
	}
	step("path", func() { w.Apply(strings.Replace(rule(1, "r1.org"), "/a", "/b", 1)) })
	step("route comes", func() { w.Apply(rule(n, "other1.org")) })
	step("route moves", func() { w.Apply(rule(n, "other2.org")) })
	step("service comes", func() { w.Apply(routedService("third")) })
	return out
}

// TestRoutedCost: an edit of a route runs the cells of its services, however many others there are, and a service without a route none of a gateway. While
// gateways have all clusters, nothing of it runs.
func TestRoutedCost(t *testing.T) {
	few, many := routedCosts(t, 10, true), routedCosts(t, 100, true)
	for name := range few {
		delete(few[name], "check") // a new host makes all objects look for it, gateways or not
		delete(many[name], "check")
		if !maps.Equal(few[name], many[name]) {
			t.Errorf("%s: with 10 services %v, with 100 %v", name, few[name], many[name])
		}
	}
	for name, want := range map[string]int{"path": 0, "route comes": 1, "route moves": 1, "service comes": 0} {
		if got := many[name]["routedClusters"]; got != want {
			t.Errorf("%s: the clusters of %d services run, want %d: %v", name, got, want, many[name])
		}
	}
	for name, cost := range routedCosts(t, 10, false) {
		for cell, n := range cost {
			if strings.Contains(strings.ToLower(cell), "routed") {
				t.Errorf("%s: %d cells of %s run although gateways have all clusters", name, n, cell)
			}
		}
	}
}
