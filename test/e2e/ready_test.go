package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestUnready: endpoints of a Service that are not ready get no requests, however few others there are.
func TestUnready(t *testing.T) {
	ready, starting := backend(t, "ready"), newService(t, "web")
	slice := func(name string, port int, ready bool) string {
		return fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: %t, serving: %t, terminating: false}}]
`, name, port, ready, ready)
	}
	object := fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.255.0.7, ports: [{name: http, port: %d}]}
`, starting.port)
	for i := range 4 {
		object += slice(fmt.Sprint(i), backend(t, fmt.Sprintf("starting %d", i)).Port, false)
	}
	b := newBed(t, "web.yaml", object+slice("ready", ready.Port, true))
	e := b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	b.answers(starting, "ready", "/")
	b.await("the endpoints to arrive", func(ctx context.Context) error {
		n, err := e.Sum(ctx, `^cluster\.outbound\|.*web\.shop.*\.membership_total$`)
		if err == nil && n != 5 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
	for range 50 {
		a, err := testbed.Call(b.Context(), b.client, starting.port, starting.host(), "/")
		if err != nil || a.Name != "ready" {
			t.Fatalf("answered by %q, %v", a.Name, err)
		}
	}
}
