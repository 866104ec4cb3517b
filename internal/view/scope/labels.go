package scope

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// maxLabels bounds how many labels of a workload count.
const maxLabels = 30

// relevantLabels are the labels of a workload that occur in matches of rules that its namespace sees.
func (q *Queries) relevantLabels(r *query.Reader, namespace string, labels mesh.Labels) mesh.Labels {
	list := labels.Items()
	if len(list) > maxLabels {
		list = list[:maxLabels]
	}
	return intern.Of(slices.DeleteFunc(list, func(l mesh.Label) bool {
		return q.tables.Hosts.DelegatesForLabel.Group(r, l).Len() == 0 && q.hostsWithRulesFor(r, l, "").Len() == 0 && q.hostsWithRulesFor(r, l, namespace).Len() == 0
	})...)
}

// hostsWithRulesFor are the hosts with rules for clients that have a label, as a viewer sees them.
func (q *Queries) hostsWithRulesFor(r *query.Reader, label mesh.Label, layer string) Hosts {
	return q.tables.Hosts.ForLabel.Group(r, claim.ForLabel{Label: label, Layer: layer})
}

func (q *Queries) defineLabelled(g *query.Graph) {
	q.labelledHosts = query.Define(g, "labelledHosts", Hosts.Equal, q.hostsForLabels)
	elem := query.Define(g, "labelledFootprint", exposure.Equal, func(r *query.Reader, h HostInSet) ([]exposure.Footprint, bool) {
		f, ok := q.services.FootprintAt(r, q.View(r, h), q.exposures(r, h))
		return []exposure.Footprint{f}, ok
	})
	footprints := query.Each(g, "labelledFootprints", q.LabelledHosts, elem, func(a Audience, host omap.Name) HostInSet {
		return HostInSet{string(host), a.Set().WithoutNames()}
	})
	q.ByAudience = audienceIndex(q.services.Index, q.Index, exposure.DefineIndex(g, "labelled.", q.tables.Domain(), footprints))
}

// hostsForLabels are the hosts of a set that clients with labels may see differently.
func (q *Queries) hostsForLabels(r *query.Reader, a Audience) (Hosts, bool) {
	k := a.facets()
	var exact []omap.Change[omap.Name, omap.Unit]
	parts := []Hosts{{}}
	for _, host := range q.traffic.RuleHosts(r, k.rules) {
		parts = q.addCovered(r, omap.With(Hosts{}, omap.Put(omap.Name(host), omap.Unit{})), parts)
	}
	for label := range k.labels.All() {
		for _, layer := range []string{"", k.set.Namespace} {
			for name := range q.hostsWithRulesFor(r, label, layer).All() {
				switch {
				case !mesh.IsWildcard(string(name)):
					exact = append(exact, omap.Put(name, omap.Unit{}))
				case len(parts) < 2*MaxGroups:
					parts = q.addCovered(r, omap.With(Hosts{}, omap.Put(name, omap.Unit{})), parts)
				}
			}
		}
		for delegate := range q.tables.Hosts.DelegatesForLabel.Group(r, label).All() {
			if len(parts) < 2*MaxGroups {
				parts = q.addDelegating(r, delegate, "", parts)
				parts = q.addDelegating(r, delegate, k.set.Namespace, parts)
			}
		}
	}
	all := omap.With(union(parts...), exact...)
	if k.set.Overlay() {
		return all, true
	}
	in := q.Hosts(r, k.set)
	var not []omap.Change[omap.Name, omap.Unit]
	for host := range all.All() {
		if !in.Has(host) {
			not = append(not, omap.Del[omap.Name, omap.Unit](host))
		}
	}
	return omap.With(all, not...), true
}
