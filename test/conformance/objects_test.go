package conformance

import (
	"fmt"
	"strings"
)

// service is a ServiceEntry. Its zero fields mean what most tests want: HTTP on port 80, one endpoint, seen by its own
// namespace only.
type service struct {
	name      string
	namespace string
	host      string
	ports     string // a YAML list without brackets
	vip       string
	endpoints []string // "address" or "address version"
	selects   string   // the app label of the workloads it selects, instead of endpoints
	export    string
	meta      string // more of the metadata
}

const (
	httpPort = "{number: 80, name: http, protocol: HTTP}"
	tcpPort  = "{number: 9000, name: tcp, protocol: TCP}"
)

// service makes the document of a ServiceEntry.
func (s *scene) service(v service) string {
	def := func(p *string, value string) {
		if *p == "" {
			*p = value
		}
	}
	def(&v.namespace, s.ns)
	def(&v.host, v.name+"."+v.namespace+".test")
	def(&v.ports, httpPort)
	def(&v.export, ".")
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: %s%s}
spec:
  hosts: ["%s"]
  exportTo: ["%s"]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [%s]
`, v.name, v.namespace, v.meta, v.host, v.export, v.ports)
	if v.vip != "" {
		fmt.Fprintf(&b, "  addresses: [%s]\n", v.vip)
	}
	if v.selects != "" {
		fmt.Fprintf(&b, "  workloadSelector: {labels: {app: %s}}\n", v.selects)
		return b.String()
	}
	if v.endpoints == nil {
		v.endpoints = []string{"10.1.0.1"}
	}
	b.WriteString("  endpoints:\n")
	for _, e := range v.endpoints {
		address, version, ok := strings.Cut(e, " ")
		fmt.Fprintf(&b, "  - address: %s\n", address)
		if ok {
			fmt.Fprintf(&b, "    labels: {version: %s}\n", version)
		}
	}
	return b.String()
}

// workload makes the document of a WorkloadEntry.
func (s *scene) workload(name, app, address string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: %s, namespace: %s}
spec: {address: %s, labels: {app: %s}}
`, name, s.ns, address, app)
}

// policy makes the document of a DestinationRule for a service: a limit of connections, and subsets by version.
func (s *scene) policy(name string, connections int, subsets ...string) string {
	doc := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %s, namespace: %s}
spec:
  host: "%s"
  exportTo: ["."]
  trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}
`, name, s.ns, s.host(name), connections)
	if len(subsets) == 0 {
		return doc
	}
	var b strings.Builder
	b.WriteString(doc + "  subsets:\n")
	for _, v := range subsets {
		fmt.Fprintf(&b, "  - {name: %s, labels: {version: %[1]s}}\n", v)
	}
	return b.String()
}

// routes makes the document of a VirtualService for a service: what begins with /tag/ goes to a destination, given as
// "service" or "service/subset", all else to the service itself.
func (s *scene) routes(name, tag, to string) string {
	destination := func(to string) string {
		to, subset, ok := strings.Cut(to, "/")
		d := fmt.Sprintf(`host: "%s"`, s.host(to))
		if ok {
			d += ", subset: " + subset
		}
		return d
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: %s}
spec:
  hosts: ["%s"]
  exportTo: ["."]
  http:
  - match: [{uri: {prefix: "/%s/"}}]
    route: [{destination: {%s}}]
  - route: [{destination: {%s}}]
`, name, s.ns, s.host(name), tag, destination(to), destination(name))
}

// sidecar makes the document of a Sidecar for a whole namespace.
func sidecar(namespace string, hosts ...string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: %s}
spec:
  egress:
  - hosts: ["%s"]
`, namespace, strings.Join(hosts, `", "`))
}

// host is the name of a service of the scene.
func (s *scene) host(name string) string { return name + "." + s.ns + ".test" }

// cluster is the name of the cluster, and of the assignment, of a service's port 80.
func (s *scene) cluster(name string) string { return s.subset(name, "") }

// subset is the name of the cluster of a subset.
func (s *scene) subset(name, subset string) string { return s.port(name, 80, subset) }

func (s *scene) port(name string, port int, subset string) string {
	return fmt.Sprintf("outbound|%d|%s|%s", port, subset, s.host(name))
}
