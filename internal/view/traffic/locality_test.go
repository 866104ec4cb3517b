package traffic

import (
	"fmt"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
)

func endpoints(at ...string) []mesh.PortEndpoint {
	var list []mesh.PortEndpoint
	for i, where := range at {
		list = append(list, mesh.PortEndpoint{Port: 80, Endpoint: &mesh.Endpoint{
			Address: fmt.Sprintf("10.0.0.%d", i+1), Locality: mesh.ParseLocality(where), Labels: mesh.LabelsOf(map[string]string{"v": fmt.Sprint(i % 2)}),
		}})
	}
	return list
}

// formatGroups formats groups as "priority:locality*endpoints=weight".
func formatGroups(groups []mesh.Group) string {
	var out []string
	for _, g := range groups {
		s := fmt.Sprintf("%d:%s*%d", g.Priority, g.Locality, len(g.Endpoints))
		if g.Weight > 0 {
			s += fmt.Sprint("=", g.Weight)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestArrange(t *testing.T) {
	shares := func(from string, to map[string]uint32) *Preference {
		return &Preference{Shares: []*networking.LocalityLoadBalancerSetting_Distribute{{From: from, To: to}}}
	}
	near := &Preference{byDistance: true}
	for _, c := range []struct {
		name   string
		p      *Preference
		client string
		labels []mesh.Label
		at     []string
		want   string
	}{
		{"none", nil, "a/b", nil, []string{"a/b", "c"}, "0:a/b*1 0:c*1"},
		{"near", near, "a/b/c", nil, []string{"z", "a/x", "a/b/x", "a/b/c"}, "0:a/b/c*1 1:a/b/x*1 2:a/x*1 3:z*1"},
		{"no gaps", near, "a/b/c", nil, []string{"z", "a/b/x"}, "0:a/b/x*1 1:z*1"},
		{"next region", &Preference{byDistance: true, takeover: map[string]string{"a": "y"}}, "a", nil, []string{"x", "y", "z"}, "0:y*1 1:x*1 1:z*1"},
		{"regions only", &Preference{byDistance: true, regionsOnly: true}, "a/b", nil, []string{"a/b", "a/c", "z"}, "0:a/b*1 0:a/c*1 1:z*1"},
		{"labels", &Preference{labels: []string{"v"}}, "z", []mesh.Label{{Name: "v", Value: "1"}}, []string{"a", "a", "a"}, "0:a*1 1:a*2"},
		{"a given label", &Preference{labels: []string{"v=0"}}, "z", nil, []string{"a", "a", "a"}, "0:a*2 1:a*1"},
		{"labels, then near", &Preference{labels: []string{"v"}, byDistance: true}, "a", []mesh.Label{{Name: "v", Value: "0"}}, []string{"z", "a", "a"}, "0:a*1 1:z*1 2:a*1"},
		{"shares", shares("a/*", map[string]uint32{"a/*": 75, "b": 25}), "a/x", nil, []string{"a/x", "a/y", "a/y", "b", "c"}, "0:a/x*1=25 0:a/y*2=50 0:b*1=25"},
		{"shares of elsewhere", shares("b/*", map[string]uint32{"b": 100}), "a", nil, []string{"a", "b"}, "0:a*1 0:b*1"},
	} {
		got := formatGroups(c.p.Arrange(endpoints(c.at...), mesh.Site{Locality: mesh.ParseLocality(c.client), Labels: intern.Of(c.labels...)}))
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Whatever the preference, the priorities together have all endpoints and have no gaps, which Envoy would refuse.
func TestRanksKeepEndpoints(t *testing.T) {
	place := rapid.SampledFrom([]string{"", "a", "a/b", "a/b/c", "a/x", "z", "z/b"})
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.SliceOfN(place, 0, 8).Draw(rt, "endpoints")
		p := &Preference{
			labels:     rapid.SampledFrom([][]string{nil, {"v"}, {"v=1", "topology.kubernetes.io/zone"}}).Draw(rt, "labels"),
			byDistance: rapid.Bool().Draw(rt, "near"), regionsOnly: rapid.Bool().Draw(rt, "regions"),
			takeover: rapid.SampledFrom([]map[string]string{nil, {"a": "z"}}).Draw(rt, "next"),
		}
		client := mesh.Site{Locality: mesh.ParseLocality(place.Draw(rt, "client")), Labels: intern.Of(mesh.Label{Name: "v", Value: "1"})}
		n, used := 0, map[uint32]bool{}
		for _, g := range p.Arrange(endpoints(at...), client) {
			n += len(g.Endpoints)
			used[g.Priority] = true
		}
		if n != len(at) {
			rt.Errorf("%d endpoints of %d", n, len(at))
		}
		for i := range len(used) {
			if !used[uint32(i)] {
				rt.Errorf("priorities %v", used)
			}
		}
	})
}
