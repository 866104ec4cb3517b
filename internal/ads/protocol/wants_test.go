package protocol

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
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
	const each, count = 1 << 20, subscribe.MaxNameBytes >> 20
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

// TestDemandsAreBounded checks that a stream gets as many virtual hosts on demand as it may have, that every other name is answered with nothing, and that
// the trouble is reported once. Clients of a workload choose the names, so the stream stays.
func TestDemandsAreBounded(t *testing.T) {
	core := NewCore(NewShared(""), Delta)
	core.SplitRoutes()
	core.DemandHosts()
	ask := func(from, to int) (wanted, absent, troubles int) {
		var list []string
		for i := from; i < to; i++ {
			list = append(list, fmt.Sprintf("80/host-%d", i))
		}
		raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: resource.VirtualHost.URL(), ResourceNamesSubscribe: list})
		must(t, err)
		q, err := request.Scan(Delta, raw)
		must(t, err)
		for _, a := range core.Step(Event{Request: q}, nil) {
			switch a.Kind {
			case Want:
				wanted += len(a.Names)
				if a.Text != "" {
					troubles++
				}
			case Send:
				absent += a.Message.Resources
				core.Step(Event{Sent: true}, nil)
			case Close:
				t.Fatal("the stream is closed")
			}
		}
		return wanted, absent, troubles
	}
	if wanted, absent, troubles := ask(0, maxDemanded); wanted != maxDemanded || absent+troubles > 0 {
		t.Errorf("as many as may be: %d wanted, %d absent, %d troubles", wanted, absent, troubles)
	}
	for i, want := range []int{1, 0} {
		if wanted, absent, troubles := ask(maxDemanded, maxDemanded+7); wanted != 0 || absent != 7 || troubles != want {
			t.Errorf("more, time %d: %d wanted, %d absent, %d troubles", i+1, wanted, absent, troubles)
		}
	}
	if s := core.Wants(); len(s) != 1 || s[0].Names != maxDemanded || s[0].Refused != 14 {
		t.Errorf("the status is %+v", s)
	}
}
