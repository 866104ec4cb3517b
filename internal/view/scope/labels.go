package scope

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// maxLabels bounds how many labels of a workload count.
const maxLabels = 30

// LabelledClients names the clients of a set with labels that some rule matches or selects by. The results of such
// rules form a layer above the view of the other clients of the set.
type LabelledClients struct {
	Set Set
	// Labels are the relevant labels; see proxy.Class.
	Labels mesh.Labels
	// Rules are the DestinationRules that select the clients.
	Rules traffic.SelectingRules
}

// LabelledClientsOf returns the labelled clients of a class. ok is false if no rule depends on their labels.
func LabelledClientsOf(c proxy.Class) (k LabelledClients, ok bool) {
	return LabelledClients{SetOf(c), c.Labels, RulesOf(c)}, !c.Labels.Empty() || !c.Rules.Empty()
}

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
	footprints := query.Each(g, "labelledFootprints", q.LabelledHosts, elem, func(k LabelledClients, host omap.Name) HostInSet {
		return HostInSet{string(host), k.Set.WithoutNames()}
	})
	q.LabelledIndex = exposure.DefineIndex(g, "labelled.", q.tables.Domain(), footprints)
}

// hostsForLabels are the hosts of a set that clients with labels may see differently.
func (q *Queries) hostsForLabels(r *query.Reader, k LabelledClients) (Hosts, bool) {
	var exact []omap.Change[omap.Name, omap.Unit]
	parts := []Hosts{{}}
	for _, host := range q.traffic.RuleHosts(r, k.Rules) {
		parts = q.addCovered(r, omap.With(Hosts{}, omap.Put(omap.Name(host), omap.Unit{})), parts)
	}
	for label := range k.Labels.All() {
		for _, layer := range []string{"", k.Set.Namespace} {
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
				parts = q.addDelegating(r, delegate, k.Set.Namespace, parts)
			}
		}
	}
	all := omap.With(union(parts...), exact...)
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
	return omap.With(all, not...), true
}
