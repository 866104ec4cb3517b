package class_test

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// emergency makes Envoy use all endpoints of a Service if fewer than half of them are healthy.
const emergency = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec:
  host: a.shop.svc.cluster.local
  trafficPolicy: {outlierDetection: {minHealthPercent: 50}}
`

// TestUnreadyEndpoints: whether clients know the endpoint that is not ready, and below which share of healthy endpoints Envoy uses all, with each setting of the
// control plane, with a rule that sets such a share and without. An endpoint that drains is known to clients of services with sessions only.
func TestUnreadyEndpoints(t *testing.T) {
	for _, c := range []struct {
		unready mesh.UnreadyEndpoints
		rule    bool
		session mesh.Session
		want    string
	}{
		{mesh.UnreadyUnlessUsed, false, mesh.Session{}, "UNKNOWN UNHEALTHY panic at 0"},
		{mesh.UnreadyUnlessUsed, true, mesh.Session{}, "UNKNOWN panic at 50"},
		{mesh.UnreadyAlways, false, mesh.Session{}, "UNKNOWN UNHEALTHY panic at 0"},
		{mesh.UnreadyAlways, true, mesh.Session{}, "UNKNOWN UNHEALTHY panic at 0"},
		{mesh.UnreadyNever, false, mesh.Session{}, "UNKNOWN panic at 0"},
		{mesh.UnreadyNever, true, mesh.Session{}, "UNKNOWN panic at 50"},
		{mesh.UnreadyUnlessUsed, false, mesh.SessionOf(sessionLabel()), "UNKNOWN UNHEALTHY DRAINING panic at 0"},
		{mesh.UnreadyAlways, true, mesh.SessionOf(sessionLabel()), "UNKNOWN UNHEALTHY DRAINING panic at 0"},
		{mesh.UnreadyNever, false, mesh.SessionOf(sessionLabel()), "UNKNOWN DRAINING panic at 0"},
	} {
		w := meshtest.NewWith(t, meshtest.Options{ClusterID: testCluster, Unready: c.unready, Sessions: true})
		objects := shop()
		service := shopService(kube.ClusterIP)
		service.Session = c.session
		objects[inShop(kube.KindService, "a")] = service
		objects[inShop(kube.KindPod, "a-3")] = shopPod("10.10.0.3", "one")
		objects[inShop(kube.KindEndpointSlice, "a-x2")] = shopSlice(kube.SliceEndpoint{Address: "10.10.0.3", Pod: "a-3", Health: kube.Draining})
		w.Observe(objects)
		if c.rule {
			w.Apply(emergency)
		}
		class := w.Connect(meshtest.Node(t, "sidecar~10.9.0.1~client.shop~shop.svc.cluster.local", "{}"))
		w.Check()
		const name = "outbound|90||a.shop.svc.cluster.local"
		got := ""
		assignment, _ := w.State(class).Get(resource.Endpoint, name)
		for _, group := range message[*endpointv3.ClusterLoadAssignment](t, assignment).Endpoints {
			for _, e := range group.LbEndpoints {
				got += fmt.Sprint(e.HealthStatus, " ")
			}
		}
		cluster, _ := w.State(class).Get(resource.Cluster, name)
		got += fmt.Sprint("panic at ", message[*clusterv3.Cluster](t, cluster).GetCommonLbConfig().GetHealthyPanicThreshold().GetValue())
		if got != c.want {
			t.Errorf("setting %d, rule %t, sessions %t: got %q, want %q", c.unready, c.rule, c.session != mesh.Session{}, got, c.want)
		}
	}
}

func sessionLabel() map[string]string {
	return map[string]string{"istio.io/persistent-session-header": "x-session"}
}
