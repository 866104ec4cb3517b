package protocol

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/xds/request"
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
