package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"

	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// application has a Service whose endpoints are its pods, and one whose endpoints are in a slice.
const application = `
apiVersion: v1
kind: Namespace
metadata: {name: kitchen, labels: {istio-injection: enabled}}
---
apiVersion: v1
kind: Service
metadata: {name: tea, namespace: kitchen}
spec: {selector: {app: tea}, ports: [{name: http, port: 80, targetPort: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tea-1, namespace: kitchen, labels: {app: tea, version: v1}}
spec: {serviceAccountName: tea, containers: [{name: tea, image: tea, ports: [{name: web, containerPort: 8080}]}]}
status: {phase: Running, podIP: 10.2.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: tea-2, namespace: kitchen, labels: {app: tea, version: v2}}
spec: {containers: [{name: tea, image: tea, ports: [{name: web, containerPort: 8081}]}]}
status: {phase: Running, podIP: 10.2.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: tea-3, namespace: kitchen, labels: {app: tea, version: v2}}
spec: {containers: [{name: tea, image: tea}]}
status: {phase: Succeeded, podIP: 10.2.0.3}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: tea, namespace: kitchen}
spec: {template: {metadata: {labels: {app: tea, version: v1}}, spec: {containers: [{name: tea, image: tea}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: cup, namespace: kitchen}
spec: {clusterIP: 10.96.0.9, selector: {app: tea}, ports: [{name: http, port: 81}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cup-1, namespace: kitchen, labels: {kubernetes.io/service-name: cup}}
addressType: IPv4
ports: [{name: http, port: 9000}]
endpoints: [{addresses: [10.3.0.1]}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: tea, namespace: kitchen}
spec: {host: tea, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tea, namespace: kitchen}
spec: {hosts: [tea], http: [{route: [{destination: {host: tea, subset: v1}}]}]}
`

// endpointsOf returns the addresses with the ports of an assignment, in order.
func endpointsOf(t *testing.T, r *discoveryv3.DeltaDiscoveryResponse) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, one := range r.Resources {
		a := &endpointv3.ClusterLoadAssignment{}
		if err := one.Resource.UnmarshalTo(a); err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, l := range a.Endpoints {
			for _, e := range l.LbEndpoints {
				s := e.GetEndpoint().GetAddress().GetSocketAddress()
				list = append(list, fmt.Sprintf("%s:%d", s.GetAddress(), s.GetPortValue()))
			}
		}
		slices.Sort(list)
		all[one.Name] = strings.Join(list, ", ")
	}
	return all
}

// TestApplicationInFiles: a folder with Services and pods serves endpoints without a cluster, and nothing in it is wrong. An edit of a pod
// reaches the proxies.
func TestApplicationInFiles(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := start(t)
	c.write("application.yaml", application)
	c.ready()
	c.until("/debug/endpointz?host=cup.kitchen.svc.cluster.local", func(_ int, body string) bool { return strings.Contains(body, "10.3.0.1") })
	c.until("/debug/problemz", func(_ int, body string) bool { return strings.TrimSpace(body) == "[]" })

	conn := c.dial()
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const tea, v1, v2, cup = "outbound|80||tea.kitchen.svc.cluster.local", "outbound|80|v1|tea.kitchen.svc.cluster.local",
		"outbound|80|v2|tea.kitchen.svc.cluster.local", "outbound|81||cup.kitchen.svc.cluster.local"
	err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "sidecar~10.9.0.1~web-1.shop~shop.svc.cluster.local"}, TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: []string{tea, v1, v2, cup},
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want map[string]string) {
		t.Helper()
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}); err != nil {
			t.Fatal(err)
		}
		got := endpointsOf(t, r)
		for name, list := range want {
			if got[name] != list {
				t.Errorf("%s: %q, want %q", name, got[name], list)
			}
		}
		if len(got) != len(want) {
			t.Errorf("got %v", got)
		}
	}
	next(map[string]string{tea: "10.2.0.1:8080, 10.2.0.2:8081", v1: "10.2.0.1:8080", v2: "10.2.0.2:8081", cup: "10.3.0.1:9000"})
	c.write("application.yaml", strings.Replace(application, "10.2.0.2", "10.2.0.7", 1))
	next(map[string]string{tea: "10.2.0.1:8080, 10.2.0.7:8081", v2: "10.2.0.7:8081"})
	if code := c.stop(); code != run.ExitDone {
		t.Errorf("exit %d\n%s", code, c.said())
	}
}
