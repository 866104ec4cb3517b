package listener_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// environmentMesh is a workload with two ports, and a Sidecar that has an ingress listener for one of them and for a third one.
const environmentMesh = `
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: web, namespace: apps}, spec: {hosts: [web.apps.svc.cluster.local], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 90, name: tcp, protocol: TCP, targetPort: 9090}], endpoints: [{address: 10.10.0.2}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: web, namespace: apps}, spec: {ingress: [{port: {number: 9090, name: http, protocol: HTTP}, defaultEndpoint: "127.0.0.1:7070"}, {port: {number: 7000, name: tcp, protocol: TCP}, defaultEndpoint: "127.0.0.1:7001"}]}}
`

const environmentNode = "sidecar~10.10.0.2~web-1.apps~apps.svc.cluster.local"

// TestServicesBesideIngress: the ports of services count beside the ingress listeners of a Sidecar if the control plane is set so. A port of
// both is the Sidecar's.
func TestServicesBesideIngress(t *testing.T) {
	for _, on := range []bool{false, true} {
		w := meshtest.NewWith(t, meshtest.Options{ServicesBesideIngress: on})
		w.Apply(environmentMesh)
		s := w.State(w.Connect(meshtest.Node(t, environmentNode, "{}")))
		meshtest.Validate(t, s)
		var clusters []string
		for r := range s.Types[resource.Cluster].All() {
			if strings.HasPrefix(r.Name(), "inbound|") {
				clusters = append(clusters, r.Name())
			}
		}
		slices.Sort(clusters)
		want := []string{"inbound|7000||", "inbound|9090||"}
		if on {
			want = []string{"inbound|7000||", "inbound|8080||", "inbound|9090||"}
		}
		if !slices.Equal(clusters, want) {
			t.Errorf("set: %v; got %q, want %q", on, clusters, want)
		}
		at, _ := s.Get(resource.Cluster, "inbound|9090||")
		if text := meshtest.YAML(t, at); !strings.Contains(text, "7070") {
			t.Errorf("set: %v; the port of both is not the Sidecar's:\n%s", on, text)
		}
	}
}

// TestSidecarRemoteAddress: connection managers of requests that the application sends add its address if the control plane is set so; the ones of
// requests to the application never do.
func TestSidecarRemoteAddress(t *testing.T) {
	for _, on := range []bool{false, true} {
		w := meshtest.NewWith(t, meshtest.Options{SidecarRemoteAddress: on})
		w.Apply(environmentMesh)
		s := w.State(w.Connect(meshtest.Node(t, environmentNode, "{}")))
		meshtest.Validate(t, s)
		if _, ok := s.Get(resource.Listener, "0.0.0.0_80"); !ok {
			t.Fatal("there is no listener for requests of the application")
		}
		for r := range s.Types[resource.Listener].All() {
			adding := strings.Contains(meshtest.YAML(t, r), "use_remote_address: true")
			if outbound := r.Name() == "0.0.0.0_80"; adding != (on && outbound) {
				t.Errorf("set: %v; listener %s adds the address: %v", on, r.Name(), adding)
			}
		}
	}
}
