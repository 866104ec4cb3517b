package scope_test

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// TestWider follows the audiences of classes from the narrowest to the widest.
func TestWider(t *testing.T) {
	labels := intern.Of(mesh.Label{Name: "app", Value: "x"})
	sidecar := api.Key{Kind: api.KindSidecar, Namespace: "a", Name: "s"}
	all, ofA := scope.Everyone(mesh.OnlyIPv4), scope.Set{Namespace: "a"}
	for name, c := range map[string]struct {
		class proxy.Class
		want  []scope.Audience // after the narrowest
	}{
		"a namespace":              {proxy.Class{Namespace: "a"}, []scope.Audience{all}},
		"labels":                   {proxy.Class{Namespace: "a", Labels: labels}, []scope.Audience{scope.InSet(ofA), all}},
		"a DestinationRule":        {proxy.Class{Namespace: "a", Rules: intern.Of("r")}, []scope.Audience{scope.InSet(ofA), all}},
		"a cluster":                {proxy.Class{Namespace: "a", Cluster: "east"}, []scope.Audience{scope.InCluster(mesh.OnlyIPv4, "east"), all}},
		"a Sidecar":                {proxy.Class{Namespace: "a", Sidecar: sidecar, Cluster: "east"}, nil},
		"labels under a Sidecar":   {proxy.Class{Namespace: "a", Sidecar: sidecar, Labels: labels}, []scope.Audience{scope.InSet(scope.Set{Namespace: "a", Sidecar: sidecar})}},
		"another IP version":       {proxy.Class{Namespace: "a", Families: mesh.OnlyIPv6}, []scope.Audience{scope.Everyone(mesh.OnlyIPv6)}},
		"labels, in a cluster":     {proxy.Class{Namespace: "a", Cluster: "east", Labels: labels}, []scope.Audience{scope.InSet(scope.Set{Namespace: "a", Cluster: "east"}), scope.InCluster(mesh.OnlyIPv4, "east"), all}},
		"short names of a cluster": {proxy.Class{Namespace: "a", ShortNames: true}, []scope.Audience{all}},
	} {
		a := scope.AudienceOf(c.class)
		if a != scope.AudienceOf(c.class) {
			t.Errorf("%s: two audiences of one class differ", name)
		}
		var got []scope.Audience
		for wider, ok := a.Wider(); ok; wider, ok = wider.Wider() {
			got = append(got, wider)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: over %v, want %v", name, got, c.want)
		}
		if n := len(got); n > 0 && c.class.Sidecar == (api.Key{}) && !got[n-1].IsEveryone() {
			t.Errorf("%s: the widest audience is %v, want everyone", name, got[n-1])
		}
	}
	if scope.Everyone(mesh.OnlyIPv4) != (scope.Audience{}) || scope.InCluster(mesh.OnlyIPv4, "") != (scope.Audience{}) {
		t.Error("the zero audience is not everyone")
	}
}
