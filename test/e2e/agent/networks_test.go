package agent

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// The services of two networks. Fruit has an endpoint in each network, and the southern one has three times the weight; only the
// north calls it. Nuts are in the north, and only the south calls them. No workload takes anything but mutual TLS of the mesh, and from the
// callers alone.
const twoNetworks = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: fruit, namespace: shop}
spec:
  hosts: [fruit.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[1]d, name: main, protocol: HTTP}]
  endpoints:
  - {address: 127.1.0.2, ports: {main: %[2]d}, network: north, weight: 1, serviceAccount: fruit, labels: {app: fruit-north, security.istio.io/tlsMode: istio}}
  - {address: 127.1.0.3, ports: {main: %[3]d}, network: south, weight: 3, serviceAccount: fruit, labels: {app: south, security.istio.io/tlsMode: istio}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: nuts, namespace: shop}
spec:
  hosts: [nuts.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[4]d, name: main, protocol: HTTP}]
  endpoints:
  - {address: 127.1.0.1, ports: {main: %[5]d}, network: north, serviceAccount: nuts, labels: {app: north, security.istio.io/tlsMode: istio}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: fruit, namespace: shop}
spec:
  host: fruit.shop.svc.cluster.local
  trafficPolicy:
    loadBalancer: {simple: ROUND_ROBIN}
    connectionPool: {http: {maxRequestsPerConnection: 2}}
---
# All proxies run on one machine, where only one of them can listen for a service.
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: north, namespace: shop}
spec: {workloadSelector: {labels: {app: north}}, egress: [{hosts: [./fruit.shop.svc.cluster.local]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: south, namespace: shop}
spec: {workloadSelector: {labels: {app: south}}, egress: [{hosts: [./nuts.shop.svc.cluster.local]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {egress: [{hosts: [~/*]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: callers, namespace: shop}
spec:
  rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/nuts, cluster.local/ns/shop/sa/fruit]}}]}]
`

// eastWest is a Gateway that forwards TLS of the mesh at a port of its own. Its gateway is selected by name.
const eastWest = `---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %[1]s, namespace: shop}
spec:
  selector: {app: %[1]s}
  servers: [{port: {number: %[2]d, name: tls, protocol: TLS}, hosts: ["*.shop.svc.cluster.local"], tls: {mode: AUTO_PASSTHROUGH}}]
`

const networks = `networks:
  north:
    endpoints: [{fromRegistry: north}]
    gateways: [{address: 127.1.0.4, port: %d}]
  south:
    endpoints: [{fromRegistry: south}]
    gateways: [{address: 127.1.0.5, port: %d}, {address: 127.1.0.6, port: %d}]
`

// networked are two networks with a control plane that both share.
type networked struct {
	*bed
	fruit, nuts int // the ports where sidecars listen
	// gateways are the agents of east-west gateways: of the north, and two of the south.
	gateways []*testbed.Agent
}

// newNetworked starts everything: in the north a client that also serves nuts, and fruit; in the south a client that also serves fruit; and
// the gateways.
func newNetworked(t *testing.T) *networked {
	t.Helper()
	n := &networked{bed: newBed(t)}
	ports, err := testbed.FreePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	n.fruit, n.nuts = ports[0], ports[1]
	var backends []int
	for _, name := range []string{"fruit-north", "fruit-south", "nuts-north"} {
		s, err := testbed.StartHTTP(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		backends = append(backends, s.Port)
	}
	names := []string{"gateway-north", "gateway-south-1", "gateway-south-2"}
	text := fmt.Sprintf(twoNetworks, n.fruit, backends[0], backends[1], n.nuts, backends[2])
	for i, name := range names {
		text += fmt.Sprintf(eastWest, name, ports[2+i])
	}
	if _, err := n.Write("web.yaml", text); err != nil {
		t.Fatal(err)
	}
	n.TLSOnly()
	n.Args = []string{"--networksConfig=" + write(t, "networks.yaml", fmt.Sprintf(networks, ports[2], ports[3], ports[4]))}
	n.serve()
	n.start("sidecar", "north", "nuts", "north", 1)
	n.start("sidecar", "fruit-north", "fruit", "north", 2)
	n.start("sidecar", "south", "fruit", "south", 3)
	for i, name := range names {
		network := strings.Split(name, "-")[1]
		n.gateways = append(n.gateways, n.start("router", name, "gateway", network, 4+i))
	}
	return n
}

// start starts an agent in a network.
func (n *networked) start(role, name, account, network string, address int) *testbed.Agent {
	n.Helper()
	o := n.certified(account)
	o.Role = role
	o.Env = append(o.Env, "ISTIO_META_NETWORK="+network)
	if role == "router" { // or it would forward a part of its connections back, to the endpoints of the other network
		o.Env = append(o.Env, "ISTIO_META_REQUESTED_NETWORK_VIEW="+network)
	}
	return n.ready(o, testbed.Node{Name: name, IP: fmt.Sprintf("127.1.0.%d", address)})
}

// by asks a service once, and returns who answered.
func (n *networked) by(ctx context.Context, port int, service string) (string, error) {
	a, err := testbed.Call(ctx, n.client, port, service+".shop.svc.cluster.local", "/")
	return a.Name, err
}

// answered waits until a service is answered by each of some backends.
func (n *networked) answered(port int, service string, backends ...string) {
	n.Helper()
	seen := map[string]bool{}
	n.await(service+" to be answered by all of its backends", func(ctx context.Context) error {
		by, err := n.by(ctx, port, service)
		if err != nil {
			return err
		}
		seen[by] = true
		for _, b := range backends {
			if !seen[b] {
				return fmt.Errorf("%s has not answered", b)
			}
		}
		return nil
	})
}

// connections is how many connections a gateway has forwarded.
func (n *networked) connections(a *testbed.Agent) int64 {
	n.Helper()
	sum, err := a.Sum(n.Context(), `^cluster\.outbound_.*\.upstream_cx_total$`)
	if err != nil {
		n.Fatal(err)
	}
	return sum
}

// TestTwoNetworks: requests go from each of two networks to the other one through its east-west gateways, with mutual TLS from end to end, in
// shares that follow from the weights of the endpoints. When one of two gateways is killed, the other one takes its connections.
func TestTwoNetworks(t *testing.T) {
	n := newNetworked(t)
	n.answered(n.fruit, "fruit", "fruit-north", "fruit-south")
	n.answered(n.nuts, "nuts", "nuts-north")
	const requests = 200
	count := map[string]int{}
	for range requests {
		by, err := n.by(t.Context(), n.fruit, "fruit")
		if err != nil {
			t.Fatal(err)
		}
		count[by]++
	}
	if share := count["fruit-north"]; share < requests/5 || share > requests*3/10 {
		t.Errorf("%v; want a quarter in the north", count)
	}
	for _, a := range n.gateways {
		if n.connections(a) == 0 {
			t.Errorf("%s has forwarded nothing", a.Node.Name)
		}
	}
	n.gateways[1].End(syscall.SIGKILL)
	n.await("the end of the Envoy of a gateway", func(ctx context.Context) error {
		if _, err := n.gateways[1].Admin(ctx, "/ready"); err == nil {
			return fmt.Errorf("it runs")
		}
		return ctx.Err()
	})
	before, south := n.connections(n.gateways[2]), 0
	for i := range requests {
		by, err := n.by(t.Context(), n.fruit, "fruit")
		if err != nil {
			t.Fatalf("request %d after the end of a gateway: %v", i, err)
		}
		if by == "fruit-south" {
			south++
		}
	}
	if now := n.connections(n.gateways[2]); south < requests/2 || now <= before {
		t.Errorf("after the end of one gateway, %d of %d requests were answered in the south, by %d connections of the other one", south, requests, now-before)
	}
	for _, a := range []*testbed.Agent{n.gateways[0], n.gateways[2]} {
		if err := a.Rejected(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
