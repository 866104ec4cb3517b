package protocol

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestWantsAreBounded checks that the core closes a stream that asks for too many or too long names, and passes none of them on.
func TestWantsAreBounded(t *testing.T) {
	many := make([]string, maxWants+1)
	for i := range many {
		many[i] = fmt.Sprint("name-", i)
	}
	for what, c := range map[string]struct {
		names []string
		ends  bool
	}{
		"as many as may be": {many[1:], false},
		"one too many":      {many, true},
		"the longest":       {[]string{strings.Repeat("n", maxWantName)}, false},
		"one too long":      {[]string{strings.Repeat("n", maxWantName+1)}, true},
	} {
		raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{
			Node: &corev3.Node{Id: "n"}, TypeUrl: resource.Secret.URL(), ResourceNamesSubscribe: c.names,
		})
		must(t, err)
		q, err := request.Scan(Delta, raw)
		must(t, err)
		out := NewCore(NewShared(""), Delta).Step(Event{Request: q}, nil)
		last := out[len(out)-1]
		if ended := last.Kind == Close && last.Refusal == TooMuch; ended != c.ends {
			t.Errorf("%s: %v", what, last)
		}
		if !c.ends && (last.Kind != Want || len(last.Names) != len(c.names)) {
			t.Errorf("%s: the mesh is asked for %d names", what, len(last.Names))
		}
	}
}

// TestSubscriptionsAreBounded checks that the core closes a stream whose names have too many bytes together, in whatever order they come and
// go, and that names which were dropped count no more.
func TestSubscriptionsAreBounded(t *testing.T) {
	const each, count = 1 << 20, maxNameBytes >> 20
	name := func(i int) string { return fmt.Sprint(i, strings.Repeat("n", each-len(fmt.Sprint(i)))) }
	for _, v := range []Variant{Delta, StateOfTheWorld} {
		core := NewCore(NewShared(""), v)
		var all []string
		step := func(add, drop []string) Action {
			var m proto.Message = &discoveryv3.DeltaDiscoveryRequest{
				Node: &corev3.Node{Id: "n"}, TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: drop,
			}
			if v == StateOfTheWorld {
				m = &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: resource.Endpoint.URL(), ResourceNames: all}
			}
			raw, err := proto.Marshal(m)
			must(t, err)
			q, err := request.Scan(v, raw)
			must(t, err)
			out := core.Step(Event{Request: q}, nil)
			if len(out) == 0 {
				return Action{}
			}
			return out[len(out)-1]
		}
		for i := range count {
			all = append(all, name(i))
		}
		if a := step(all, nil); a.Kind == Close {
			t.Fatalf("%v: as many as may be: %v", v, a)
		}
		dropped := all[0]
		all = append(all[1:], name(count))
		if a := step([]string{name(count)}, []string{dropped}); a.Kind == Close {
			t.Errorf("%v: one in the place of another: %v", v, a)
		}
		all = append(all, dropped)
		if a := step([]string{dropped}, nil); a.Kind != Close || a.Refusal != TooMuch {
			t.Errorf("%v: one too many: %v", v, a)
		}
	}
}
