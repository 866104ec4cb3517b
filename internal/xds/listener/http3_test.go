package listener_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const http3Servers = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: edge}
spec:
  selector: {gw: front}
  servers:
  - {port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.exam.com, "*.a.com"], tls: {mode: SIMPLE, credentialName: a}}
  - {port: {number: 443, name: b, protocol: HTTPS}, hosts: [b.exam.com], tls: {mode: SIMPLE, credentialName: b, minProtocolVersion: TLSV1_3, cipherSuites: [ECDHE-RSA-AES128-SHA]}}
  - {port: {number: 443, name: mutual, protocol: HTTPS}, hosts: [mutual.exam.com], tls: {mode: MUTUAL, credentialName: a}}
  - {port: {number: 443, name: optional, protocol: HTTPS}, hosts: [optional.exam.com], tls: {mode: OPTIONAL_MUTUAL, credentialName: a}}
  - {port: {number: 443, name: mesh, protocol: HTTPS}, hosts: [mesh.exam.com], tls: {mode: ISTIO_MUTUAL}}
  - {port: {number: 443, name: old, protocol: HTTPS}, hosts: [old.exam.com], tls: {mode: SIMPLE, credentialName: a, maxProtocolVersion: TLSV1_2}}
  - {port: {number: 443, name: pass, protocol: TLS}, hosts: [pass.exam.com], tls: {mode: PASSTHROUGH}}
  - {port: {number: 444, name: c, protocol: HTTPS}, hosts: [c.exam.com], tls: {mode: SIMPLE, credentialName: a}}
  - {port: {number: 80, name: d, protocol: HTTP}, hosts: [d.exam.com]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: apps}
spec: {hosts: [web.org], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: apps}
spec:
  hosts: ["*"]
  gateways: [edge/front]
  http: [{route: [{destination: {host: web.org}}]}]
`

// http3World is a mesh with a gateway behind a Service. Only port 80 and 443 are UDP ports of the Service.
func http3World(t *testing.T, on bool, metadata string) *resource.State {
	t.Helper()
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: "west", QUIC: on})
	w.Apply(http3Servers)
	key := func(kind, name string) api.Key {
		return api.Key{Kind: kind, Namespace: "edge", Name: name, Cluster: "west"}
	}
	labels := mesh.LabelsOf(map[string]string{"gw": "front"})
	w.Observe(map[api.Key]kube.Value{
		key(kube.KindPod, "gw-1"): &kube.Pod{Address: "10.10.0.1", Labels: labels},
		key(kube.KindService, "front"): &kube.Service{Addresses: []string{"10.96.0.1"}, Selector: labels, Ports: []kube.ServicePort{
			{Name: "https", Number: 443, Protocol: mesh.HTTPS, Target: 8443}, {Name: "https-b", Number: 444, Protocol: mesh.HTTPS, Target: 8444},
			{Name: "http3", Number: 443, Protocol: mesh.UDP, Target: 9443}, {Name: "udp", Number: 80, Protocol: mesh.UDP, Target: 8080},
		}},
	})
	s := w.State(w.Connect(meshtest.Node(t, "router~10.10.0.1~gw-1.edge~edge.svc.cluster.local", metadata)))
	w.Check()
	meshtest.Validate(t, s)
	if envoy, err := meshtest.FindEnvoy(""); err == nil {
		meshtest.Accept(t, envoy, t.TempDir(), s)
	}
	return s
}

func namesOf(s *resource.State, typ resource.Type) (list []string) {
	for r := range s.Types[typ].All() {
		list = append(list, r.Name())
	}
	slices.Sort(list)
	return list
}

// TestHTTP3: the servers of a port that is also a UDP port of the gateway's Service take HTTP/3 at its target port, and their answers say so. Servers
// that ask clients for certificates, that do not speak TLS 1.3 or that do not terminate TLS are left out.
func TestHTTP3(t *testing.T) {
	s := http3World(t, true, `{"LABELS": {"gw": "front"}, "CLUSTER_ID": "west"}`)
	if got, want := namesOf(s, resource.Listener), []string{"0.0.0.0_80", "0.0.0.0_8443", "0.0.0.0_8444", "udp_0.0.0.0_9443"}; !slices.Equal(got, want) {
		t.Fatalf("listeners %q, want %q", got, want)
	}
	r, _ := s.Get(resource.Listener, "udp_0.0.0.0_9443")
	text := meshtest.YAML(t, r)
	for part, n := range map[string]int{
		"protocol: UDP": 1, "quic_options": 1, "- a.exam.com": 1, "- '*.a.com'": 1, "- b.exam.com": 1, "codec_type: HTTP3": 2, "- h3": 2, "QuicDownstreamTransport": 2,
		"name: kubernetes://a": 1, "name: kubernetes://b": 1, "tls_minimum_protocol_version: TLSv1_3": 2, "cipher_suites": 0, "tls_inspector": 0,
		"mutual.exam.com": 0, "optional.exam.com": 0, "mesh.exam.com": 0, "old.exam.com": 0, "pass.exam.com": 0, "c.exam.com": 0,
	} {
		if got := strings.Count(text, part); got != n {
			t.Errorf("%q occurs %d times, want %d:\n%s", part, got, n, text)
		}
	}
	offered := map[string]bool{}
	for _, name := range namesOf(s, resource.Route) {
		r, _ := s.Get(resource.Route, name)
		offered[name] = strings.Contains(meshtest.YAML(t, r), `value: h3=":443"; ma=86400`)
	}
	want := map[string]bool{
		"http.80": false, "https.443.a.front.edge": true, "https.443.b.front.edge": true, "https.443.mutual.front.edge": false, "https.443.optional.front.edge": false,
		"https.443.mesh.front.edge": false, "https.443.old.front.edge": false, "https.444.c.front.edge": false,
	}
	if !maps.Equal(offered, want) {
		t.Errorf("HTTP/3 is offered by %v, want %v", offered, want)
	}
}

// TestHTTP3Off: without the setting, a UDP port of the Service changes nothing.
func TestHTTP3Off(t *testing.T) {
	s := http3World(t, false, `{"LABELS": {"gw": "front"}, "CLUSTER_ID": "west"}`)
	if got, want := namesOf(s, resource.Listener), []string{"0.0.0.0_80", "0.0.0.0_8443", "0.0.0.0_8444"}; !slices.Equal(got, want) {
		t.Errorf("listeners %q, want %q", got, want)
	}
	for _, name := range namesOf(s, resource.Route) {
		if r, _ := s.Get(resource.Route, name); strings.Contains(meshtest.YAML(t, r), "alt-svc") {
			t.Errorf("%s offers HTTP/3", name)
		}
	}
}

// TestHTTP3OnDemand: where hosts share a filter chain, they have filter chains of their own for HTTP/3, because Envoy gets no certificates on demand
// over QUIC. Their shared routes offer HTTP/3, too.
func TestHTTP3OnDemand(t *testing.T) {
	s := http3World(t, true, `{"LABELS": {"gw": "front"}, "CLUSTER_ID": "west", "ON_DEMAND_CERTIFICATES": "true"}`)
	r, ok := s.Get(resource.Listener, "udp_0.0.0.0_9443")
	if !ok || strings.Count(meshtest.YAML(t, r), "- a.exam.com") != 1 || strings.Contains(meshtest.YAML(t, r), "on_demand") {
		t.Errorf("the listener for HTTP/3 has no filter chain for a.exam.com, or gets its certificate on demand")
	}
	if r, ok := s.Get(resource.Route, "shared.8443"); !ok || !strings.Contains(meshtest.YAML(t, r), `h3=":443"`) {
		t.Error("the shared route configuration does not offer HTTP/3")
	}
}
