package protocol

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// BenchmarkFanOut measures the core per stream when one assignment of a thousand changes: publish, message, ACK.
func BenchmarkFanOut(b *testing.B) {
	var puts []omap.Change[omap.Name, *resource.Resource]
	var list []string
	for i := range 1000 {
		name := fmt.Sprintf("c%04d", i)
		list = append(list, name)
		puts = append(puts, omap.Put(omap.Name(name), resource.New(resource.Endpoint, name, message(resource.Endpoint, name, "1"))))
	}
	all := omap.With(transition.Resources{}, puts...)
	node := &corev3.Node{Id: "sidecar~10.0.0.1~a.b~b.svc.cluster.local"}
	shared := NewShared("bench")
	cores := make([]*Core, 500)
	state := &resource.State{}
	state.Types[resource.Endpoint] = resource.Layers{all}
	var out []Action
	for i := range cores {
		cores[i] = NewCore(shared, Delta)
		out = speak(b, cores[i], &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: list}, out)
		out = cores[i].Step(Event{State: state}, out[:0])
		out = finish(b, cores[i], out)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		c := cores[n%len(cores)]
		if n%len(cores) == 0 {
			b.StopTimer()
			r := resource.New(resource.Endpoint, "c0500", message(resource.Endpoint, "c0500", fmt.Sprint(n)))
			all = omap.With(all, omap.Put(omap.Name("c0500"), r))
			state = &resource.State{Revision: store.Revision(n)}
			state.Types[resource.Endpoint] = resource.Layers{all}
			shared.Forget()
			b.StartTimer()
		}
		out = c.Step(Event{State: state}, out[:0])
		out = finish(b, c, out)
	}
}

// finish writes and acknowledges all messages.
func finish(b *testing.B, c *Core, out []Action) []Action {
	for len(out) > 0 && out[len(out)-1].Kind == Send {
		a := out[len(out)-1]
		out = c.Step(Event{Sent: true}, out[:0])
		if len(out) == 0 {
			q := Request{Variant: Delta, URL: []byte(a.Type.URL()), Nonce: []byte(a.Nonce)}
			out = c.Step(Event{Request: &q}, out[:0])
		}
	}
	return out
}

func speak(b *testing.B, c *Core, m proto.Message, out []Action) []Action {
	raw, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	q, err := request.Scan(Delta, raw)
	if err != nil {
		b.Fatal(err)
	}
	return c.Step(Event{Request: q}, out[:0])
}

// BenchmarkScanBigACK measures a State-of-the-World ACK that repeats 12,000 names.
func BenchmarkScanBigACK(b *testing.B) {
	m := &discoveryv3.DiscoveryRequest{TypeUrl: resource.Endpoint.URL(), ResponseNonce: "7e"}
	for i := range 12_000 {
		m.ResourceNames = append(m.ResourceNames, fmt.Sprintf("outbound|80||service-%d.namespace-%d.svc.cluster.local", i, i%100))
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for range b.N {
		q, err := request.Scan(StateOfTheWorld, raw)
		if err != nil {
			b.Fatal(err)
		}
		_ = q.Digest()
	}
}
