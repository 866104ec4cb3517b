package cluster_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const originated = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec:
  host: a
  trafficPolicy: {tls: {mode: SIMPLE, caCertificates: /certs/ca.pem}}
  subsets:
  - {name: mesh, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
`

// The certificate of an application behind a Service does not name the service account of its pods: only TLS of the mesh verifies that.
func TestTLSOfApplication(t *testing.T) {
	w := meshtest.New(t)
	w.Load(originated)
	at := func(kind, name string) api.Key {
		return api.Key{Kind: kind, Namespace: "shop", Name: name, Cluster: "west"}
	}
	w.Observe(map[api.Key]kube.Value{
		at(kube.KindService, "a"): &kube.Service{
			Created: 1, Type: kube.ClusterIP, Addresses: []string{"10.96.0.1"}, Selector: mesh.LabelsOf(map[string]string{"app": "a"}),
			Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP, Target: 8443}},
		},
		at(kube.KindEndpointSlice, "a-x1"): &kube.Slice{
			Service: "a", Controlled: true, Endpoints: []kube.SliceEndpoint{{Address: "10.10.0.1", Pod: "a-1"}},
			Ports: intern.Of(kube.SlicePort{Name: "http", Number: 8443}),
		},
		at(kube.KindPod, "a-1"): &kube.Pod{Address: "10.10.0.1", ServiceAccount: "one", Labels: mesh.LabelsOf(map[string]string{"app": "a"})},
	})
	s := w.State(w.Connect(meshtest.Node(t, "sidecar~10.10.0.9~web-0.shop~shop.svc.cluster.local", `{"CLUSTER_ID": "west"}`)))
	for name, want := range map[string]bool{
		"outbound|80||a.shop.svc.cluster.local": false, "outbound|80|mesh|a.shop.svc.cluster.local": true,
	} {
		got := meshtest.Print(t, s, func(typ resource.Type, other string) bool { return typ == resource.Cluster && other == name })
		if strings.Contains(got, "spiffe://cluster.local/ns/shop/sa/one") != want {
			t.Errorf("%s verifies the service account: %t, want %t", name, !want, want)
		}
	}
}
