package loop

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// routedServices are services with one endpoint each; the first service has a route at a gateway.
func routedServices(endpoints ...string) string {
	list := []string{`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: edge}
spec: {selector: {gw: front}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: vs, namespace: apps}
spec: {hosts: [h.org], gateways: [edge/front], http: [{route: [{destination: {host: s0.org}}]}]}
`}
	for i, address := range endpoints {
		list = append(list, fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%[1]d, namespace: apps}
spec: {hosts: [s%[1]d.org], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: %[2]s}]}
`, i, address))
	}
	return strings.Join(list, "---")
}

// subscriber is the core of a stream with a client that subscribes to the assignments of its clusters, as Envoy does.
type subscriber struct {
	t       *testing.T
	core    *protocol.Core
	node    *corev3.Node
	asked   map[string]bool
	got     [resource.Types]int // resources that were sent
	pending []protocol.Event
}

func (e *subscriber) ask(q *discoveryv3.DeltaDiscoveryRequest) {
	q.Node, e.node = e.node, nil
	raw, err := proto.Marshal(q)
	if err != nil {
		e.t.Fatal(err)
	}
	scanned, err := request.Scan(protocol.Delta, raw)
	if err != nil {
		e.t.Fatal(err)
	}
	e.pending = append(e.pending, protocol.Event{Request: scanned})
}

// take plays the conversation that follows from a state until neither side has a message to send, and returns how many resources of each type were sent.
func (e *subscriber) take(s *resource.State) [resource.Types]int {
	e.got = [resource.Types]int{}
	for e.pending = append(e.pending, protocol.Event{State: s}); len(e.pending) > 0; {
		next := e.pending[0]
		e.pending = e.pending[1:]
		for _, a := range e.core.Step(next, nil) {
			if a.Kind == protocol.Send {
				e.receive(a, s)
			}
		}
	}
	return e.got
}

func (e *subscriber) receive(a protocol.Action, s *resource.State) {
	t := a.Message.Type
	e.got[t] += a.Message.Resources
	e.pending = append(e.pending, protocol.Event{Sent: true})
	e.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResponseNonce: a.Nonce})
	var names []string
	for c := range s.Types[resource.Cluster].All() {
		if name, ok := c.EDS(); t == resource.Cluster && ok && !e.asked[name] {
			e.asked[name], names = true, append(names, name)
		}
	}
	if slices.Sort(names); len(names) > 0 {
		e.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: names})
	}
}

// TestRoutedAssignments: a gateway that has the clusters only of the services to which it routes is sent the assignments of these only, although its class has
// the others as well: it asks for no others.
func TestRoutedAssignments(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{FilterGatewayClusters: true})
	w.Apply(routedServices("10.1.0.1", "10.1.1.1", "10.1.2.1"))
	class := w.Connect(meshtest.Node(t, "router~10.0.0.1~gw-0.edge~edge.svc.cluster.local", `{"LABELS": {"gw": "front"}}`))
	e := &subscriber{t: t, core: protocol.NewCore(protocol.NewShared(""), protocol.Delta), node: &corev3.Node{Id: "gw"}, asked: map[string]bool{}}
	e.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Cluster.URL()})
	was := w.State(class)
	if got := e.take(was)[resource.Endpoint]; got != 1 || !e.asked["outbound|80||s0.org"] {
		t.Errorf("the gateway is sent %d assignments, want the one of s0.org; it asks for %v", got, e.asked)
	}
	w.Apply(routedServices("10.1.0.1", "10.1.1.2", "10.1.2.1"))
	now := w.State(class)
	if now.Types[resource.Endpoint].Same(was.Types[resource.Endpoint]) {
		t.Error("the class has the assignments of no other services: then this test proves nothing")
	}
	if got := e.take(now); got != [resource.Types]int{} {
		t.Errorf("after a change of another service the gateway is sent resources: %v", got)
	}
	w.Apply(routedServices("10.1.0.2", "10.1.1.2", "10.1.2.1"))
	if got := e.take(w.State(class)); got[resource.Endpoint] != 1 {
		t.Errorf("after a change of its service the gateway is sent %d assignments, want 1", got[resource.Endpoint])
	}
	w.Apply(strings.Replace(routedServices("10.1.0.2", "10.1.1.2", "10.1.2.1"), "host: s0.org", "host: s2.org", 1))
	if got := e.take(w.State(class)); got[resource.Endpoint] != 1 || !e.asked["outbound|80||s2.org"] {
		t.Errorf("after a change of its route the gateway is sent %d assignments, want the one of s2.org; it asked for %v", got[resource.Endpoint], e.asked)
	}
}
