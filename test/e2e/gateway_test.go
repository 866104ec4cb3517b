package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// front is a gateway with a port for HTTP and one for TLS that it does not terminate.
type front struct {
	http, tls service
}

func newFront(t *testing.T) front {
	return front{newService(t, "front"), newService(t, "front")}
}

func (f front) gateway() string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec:
  selector: {gw: front}
  servers:
  - {port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: %d, name: tls, protocol: TLS}, hosts: ["*"], tls: {mode: PASSTHROUGH}}
`, f.http.port, f.tls.port)
}

// routes is a VirtualService of the gateway with some rules.
func (f front) routes(name, host, rules string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  gateways: [front]
%s`, name, host, rules)
}

func toService(s service) string {
	return fmt.Sprintf("  http: [{route: [{destination: {host: %s}}]}]\n", s.host())
}

// TestRoutedClusters: a gateway with the clusters only of the services to which it routes. A route to another service, a mirror and a delegate bring
// the clusters before the routes, so that no request fails, and the clusters go after the routes. So do routes for TLS.
func TestRoutedClusters(t *testing.T) {
	t.Setenv("PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", "true")
	variants(t, func(t *testing.T, node testbed.Node) {
		f := newFront(t)
		blue, green, other := newService(t, "blue", backend(t, "blue")), newService(t, "green", backend(t, "green")), newService(t, "other", backend(t, "other"))
		vault := greeters(t, "vault", "TLS")
		b := newBed(t, "all.yaml", f.gateway()+blue.entry()+green.entry()+other.entry()+vault.entry(), "routes.yaml", f.routes("all", f.http.host(), toService(blue)))
		node.Gateway = true
		if node.Metadata == nil {
			node.Metadata = map[string]any{}
		}
		node.Metadata["LABELS"] = map[string]any{"gw": "front"}
		e := b.envoy(node)
		b.answers(f.http, "blue", "/")
		b.has(e, 1, "outbound|")
		load := b.load(f.http)
		for i := range 10 {
			s := []service{green, blue}[i%2]
			b.write("routes.yaml", f.routes("all", f.http.host(), toService(s)))
			b.loaded(load, s.name)
		}
		b.has(e, 1, "outbound|")

		b.write("routes.yaml", f.routes("all", f.http.host(), fmt.Sprintf("  http: [{route: [{destination: {host: %s}}], mirror: {host: %s}}]\n", blue.host(), other.host())))
		b.await("a request to be mirrored", func(context.Context) error {
			if other.versions[0].Requests() == 0 {
				return fmt.Errorf("none came")
			}
			return nil
		})
		b.has(e, 2, "outbound|")
		delegate := fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: part, namespace: shop}
spec: {http: [{route: [{destination: {host: %s}}]}]}
`, green.host())
		b.write("routes.yaml", f.routes("all", f.http.host(), "  http: [{delegate: {name: part, namespace: shop}}]\n")+delegate)
		b.loaded(load, "green")
		b.has(e, 1, "outbound|")
		b.clean(load)

		b.write("vault.yaml", f.routes("vault", "vault.example.com", fmt.Sprintf("  tls: [{match: [{sniHosts: [vault.example.com]}], route: [{destination: {host: %s}}]}]\n", vault.host())))
		b.await("a connection to the vault", func(ctx context.Context) error {
			_, err := testbed.Greeting(ctx, f.tls.port, "vault.example.com")
			return err
		})
		b.has(e, 2, "outbound|")
		b.remove("vault.yaml")
		b.has(e, 1, "outbound|")
		b.remove("routes.yaml")
		b.has(e, 0, "outbound|")
	})
}
