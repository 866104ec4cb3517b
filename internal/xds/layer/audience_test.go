package layer

import (
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// TestOwn: a layer has what differs from the next wider audience: other results, and entries that hide results that the wider audience has.
func TestOwn(t *testing.T) {
	all, cluster, set := scope.Audience{}, scope.InCluster(mesh.OnlyIPv4, "east"), scope.InSet(scope.Set{Namespace: "a", Cluster: "east"})
	for name, c := range map[string]struct {
		keys map[scope.Audience]string // the keys of each audience, separated by blanks
		want string                    // the layer of the set
	}{
		"the same keys":                       {map[scope.Audience]string{all: "a=1", cluster: "a=1", set: "a=1"}, ""},
		"other keys with the same results":    {map[scope.Audience]string{all: "a=1", cluster: "a=1", set: "a=1;"}, ""},
		"another result":                      {map[scope.Audience]string{all: "a=1", cluster: "a=1", set: "a=2"}, "a=2"},
		"the same as everyone, not as nearer": {map[scope.Audience]string{all: "a=1", cluster: "a=2", set: "a=1"}, "a=1"},
		"one result less":                     {map[scope.Audience]string{all: "a=1 b=1", cluster: "a=1 b=1", set: "a=1"}, "a=1, b hidden"},
		"one result more":                     {map[scope.Audience]string{all: "a=1", cluster: "a=1", set: "a=1 b=1"}, "a=1, b=1"},
		"no result":                           {map[scope.Audience]string{all: "a=1", cluster: "a=1"}, "a hidden"},
		"only in the set":                     {map[scope.Audience]string{set: "a=1"}, "a=1"},
	} {
		g := query.New(store.New(), query.Options{Strict: true})
		results := query.Define(g, "result", Equal[entry], func(_ *query.Reader, k string) ([]entry, bool) {
			name, content, _ := strings.Cut(strings.TrimSuffix(k, ";"), "=")
			return []entry{{name: name, content: content}}, true
		})
		own := Keyed[string, string, omap.Name, entry]{
			Results: results, Hide: hide,
			Elements: func(*query.Reader, At[string]) omap.Map[omap.Name, omap.Unit] {
				return omap.With(omap.Map[omap.Name, omap.Unit]{}, omap.Put(omap.Name("host"), omap.Unit{}))
			},
			Keys: func(_ *query.Reader, at At[string], host omap.Name) []string {
				if at.Place != "80" || host != "host" {
					t.Errorf("%s: keys of %s at %s", name, host, at.Place)
				}
				return strings.Fields(c.keys[at.Audience])
			},
		}.Own(g, "own")
		var list []entry
		for _, e := range own.Get(g.Naive(), At[string]{set, "80"}).All() {
			list = append(list, e)
		}
		if got := strings.Join(slices.Sorted(slices.Values(texts(list))), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
