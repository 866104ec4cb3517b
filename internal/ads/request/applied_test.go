package request

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

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
		"long":  {[]string{of + strings.Repeat("x", maxWarmingName+1)}, "[{LDS [] true}]"},
		"twice": {[]string{of + "b", of + "a", of + "b"}, "[{LDS [a b] false}]"},
		"wants": {[]string{resource.Secret.URL() + "/s"}, "[]"},
	} {
		raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: AppliedURL, ResourceNamesSubscribe: c.names})
		if err != nil {
			t.Fatal(err)
		}
		q, err := Scan(Delta, raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(q.Warming()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestDraining: a report says what drains in a name of its own, which is no warming resource. What cannot be read says nothing.
func TestDraining(t *testing.T) {
	for name, want := range map[string]string{
		"2/5": "{2 5}", "0/5": "{0 0}", "2": "{0 0}", "": "{0 0}", "-1/5": "{0 0}", "2/x": "{0 0}", "2/99999999999": "{0 0}", "7/0": "{7 0}",
	} {
		raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: AppliedURL, ResourceNamesSubscribe: []string{resource.Listener.URL() + "/l", drainingPrefix + name}})
		if err != nil {
			t.Fatal(err)
		}
		q, err := Scan(Delta, raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(q.Draining(), q.Warming()); got != want+" [{LDS [l] false}]" {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// FuzzWarming: whatever the names of a report are, the result of Warming is bounded and in order.
func FuzzWarming(f *testing.F) {
	f.Add(resource.Cluster.URL()+"/a", resource.Listener.URL()+"/*")
	f.Add("type.googleapis.com//", "/")
	f.Fuzz(func(t *testing.T, a, b string) {
		raw, err := proto.Marshal(&discoveryv3.DiscoveryRequest{TypeUrl: AppliedURL, ResourceNames: []string{a, b}})
		if err != nil {
			return
		}
		q, err := Scan(StateOfTheWorld, raw)
		if err != nil {
			return
		}
		for _, w := range q.Warming() {
			if w.Type >= resource.Types || len(w.Names) > 2 || !w.More && len(w.Names) == 0 {
				t.Errorf("%q, %q: %v", a, b, w)
			}
		}
	})
}
