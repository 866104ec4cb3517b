package scope

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// maxLabels bounds how many labels of a workload are looked up.
const maxLabels = 30

// Labelled names the callers of a set who have labels that rules name or select: what such rules say lies over what the set
// sees.
type Labelled struct {
	Set    Set
	Labels mesh.Labels   // as in proxy.Class
	Rules  traffic.Rules // the DestinationRules that select them
}

// LabelledOf are the callers of a class; ok is false if no rule speaks of their labels.
func LabelledOf(c proxy.Class) (k Labelled, ok bool) {
	return Labelled{SetOf(c), c.Labels, ClientOf(c).Rules}, !c.Labels.Empty() || !c.Rules.Empty()
}

// mentioned are those of a workload's labels that rules which a namespace sees name: only those can matter.
func (q *Queries) mentioned(r *query.Reader, namespace string, labels map[string]string) mesh.Labels {
	list := mesh.SortedLabels(labels)
	if len(list) > maxLabels {
		list = list[:maxLabels]
	}
	return intern.Of(slices.DeleteFunc(list, func(l mesh.Label) bool {
		return q.tables.Hosts.DelegatesForLabel.Group(r, l).Len() == 0 && q.naming(r, l, "").Len() == 0 && q.naming(r, l, namespace).Len() == 0
	})...)
}

// naming are the hosts with rules for callers that have a label, as a layer sees them.
func (q *Queries) naming(r *query.Reader, label mesh.Label, layer string) Hosts {
	return q.tables.Hosts.ForLabel.Group(r, state.ForLabel{Label: label, Layer: layer})
}

func (q *Queries) defineLabelled(g *query.Graph) {
	q.labelledHosts = query.Define(g, "labelledHosts", Hosts.Equal, q.labelled)
	elem := query.Define(g, "labelledFootprint", service.EqualFootprints, func(r *query.Reader, h HostIn) ([]service.Footprint, bool) {
		f, ok := q.services.FootprintAt(r, q.View(r, h), q.places(r, h))
		return []service.Footprint{f}, ok
	})
	footprints := query.Each(g, "labelledFootprints", q.LabelledHosts, elem, func(k Labelled, host omap.Name) HostIn { return HostIn{string(host), k.Set.Plain()} })
	q.Labelled = service.DefineTaken(g, "labelled.", q.tables.Domain(), footprints)
}

// labelled are the hosts of a set that callers with labels may see differently.
func (q *Queries) labelled(r *query.Reader, k Labelled) (Hosts, bool) {
	var exact []omap.Change[omap.Name, omap.Unit]
	parts := []Hosts{{}}
	for _, host := range q.traffic.Hosts(r, k.Rules) {
		parts = q.below(r, Hosts{}.With(omap.Put(omap.Name(host), omap.Unit{})), parts)
	}
	for label := range k.Labels.All() {
		for _, layer := range []string{"", k.Set.Namespace} {
			for name := range q.naming(r, label, layer).All() {
				switch {
				case !mesh.IsWildcard(string(name)):
					exact = append(exact, omap.Put(name, omap.Unit{}))
				case len(parts) < 2*MaxGroups:
					parts = q.below(r, Hosts{}.With(omap.Put(name, omap.Unit{})), parts)
				}
			}
		}
		for delegate := range q.tables.Hosts.DelegatesForLabel.Group(r, label).All() {
			if len(parts) < 2*MaxGroups {
				parts = q.through(r, delegate, "", parts)
				parts = q.through(r, delegate, k.Set.Namespace, parts)
			}
		}
	}
	all := union(parts...).With(exact...)
	if k.Set.Overlay() {
		return all, true
	}
	in := q.Hosts(r, k.Set)
	var not []omap.Change[omap.Name, omap.Unit]
	for host := range all.All() {
		if !in.Has(host) {
			not = append(not, omap.Del[omap.Name, omap.Unit](host))
		}
	}
	return all.With(not...), true
}
