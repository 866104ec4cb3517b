package protocol

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// FuzzFirstMessage checks that the core and the decoder of nodes process or refuse any first message without a panic.
func FuzzFirstMessage(f *testing.F) {
	raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "n"}, TypeUrl: resource.Cluster.URL(), ResourceNamesSubscribe: []string{"a", "zzz"},
		InitialResourceVersions: map[string]string{"a": "x"},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	w := newWorld()
	if err := w.edit("CDS a=1 b=1; EDS a=1; LDS l=1; RDS 80[x=1>a]"); err != nil {
		f.Fatal(err)
	}
	state := w.state(1)
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, v := range []Variant{Delta, StateOfTheWorld} {
			q, err := request.Scan(v, raw)
			if err != nil {
				continue
			}
			c := NewCore(NewShared("fuzz"), v)
			out := c.Step(Event{Request: q}, nil)
			out = append(out, c.Step(Event{State: state}, nil)...)
			out = append(out, c.Step(Event{Request: q}, nil)...)
			for _, a := range out {
				if a.Kind == Connect {
					_, _ = request.DecodeNode(a.Node)
				}
			}
		}
	})
}
