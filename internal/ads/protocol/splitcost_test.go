package protocol

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestSplitCost: in the split form, an edit of one virtual host sends as much in a mesh of any size, and less than a kilobyte.
func TestSplitCost(t *testing.T) {
	var sizes []int
	for _, hosts := range []int{100, 3000} {
		w := newWorld()
		must(t, w.edit("RDS 80[base=0]"))
		for i := range hosts {
			w.pieces["80"][fmt.Sprintf("service-%04d.shop.svc.cluster.local:80", i)] = "1"
		}
		core := NewCore(NewShared("test"), Delta)
		core.SplitRoutes()
		step := func(e Event) (sent []Action) {
			for more := true; more; {
				more = false
				for _, a := range core.Step(e, nil) {
					if a.Kind == Send {
						sent, more = append(sent, a), true
					}
				}
				e = Event{Sent: true}
			}
			return sent
		}
		ask := func(q *discoveryv3.DeltaDiscoveryRequest) []Action {
			raw, err := proto.Marshal(q)
			must(t, err)
			scanned, err := request.Scan(Delta, raw)
			must(t, err)
			return step(Event{Request: scanned})
		}
		step(Event{State: w.state(1)})
		first := ask(&discoveryv3.DeltaDiscoveryRequest{
			Node: &corev3.Node{Id: "n"}, TypeUrl: resource.Route.URL(), ResourceNamesSubscribe: []string{"80"},
		})
		if len(first) != 2 || first[1].Message.Resources != hosts+1 {
			t.Fatalf("%d responses, want the head and one with %d virtual hosts", len(first), hosts+1)
		}
		for _, a := range first {
			ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: a.Type.URL(), ResponseNonce: a.Nonce})
		}
		w.pieces["80"]["service-0050.shop.svc.cluster.local:80"] = "2"
		edited := step(Event{State: w.state(2)})
		if len(edited) != 1 || edited[0].Type != resource.VirtualHost {
			t.Fatalf("an edit sends %d responses", len(edited))
		}
		sizes = append(sizes, edited[0].Message.Size)
	}
	if sizes[0] != sizes[1] || sizes[0] > 1024 {
		t.Errorf("an edit sends %v bytes", sizes)
	}
}
