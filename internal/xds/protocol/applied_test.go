package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/xds/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestAppliedIsBounded (own/applied-bounded): a report with more names, longer ones or the same name twice costs no more than a full one.
func TestAppliedIsBounded(t *testing.T) {
	of := resource.Listener.URL() + "/"
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("%s%03d", of, i))
	}
	for name, c := range map[string]struct {
		names []string
		want  string
	}{
		"many":  {many, "[{LDS [000 001 002 003 004 005 006 007 008 009 010 011 012 013 014 015 016 017 018 019] true}]"},
		"long":  {[]string{of + strings.Repeat("x", maxWantName+1)}, "[{LDS [] true}]"},
		"twice": {[]string{of + "b", of + "a", of + "b"}, "[{LDS [a b] false}]"},
		"wants": {[]string{resource.Secret.URL() + "/s"}, "[]"},
	} {
		raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{}, TypeUrl: appliedURL, ResourceNamesSubscribe: c.names})
		must(t, err)
		q, err := request.Scan(Delta, raw)
		must(t, err)
		out := NewCore(NewShared("test"), Delta).Step(Event{Request: q}, nil)
		i := slices.IndexFunc(out, func(a Action) bool { return a.Kind == Applied })
		if i < 0 || fmt.Sprint(out[i].Warming) != c.want {
			t.Errorf("%s: %v, want %s", name, out, c.want)
		}
	}
}
