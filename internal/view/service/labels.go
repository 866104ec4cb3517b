package service

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
)

// defineLabels adds the queries that tell which labels endpoints have, so that whoever asks for labels depends on these
// alone, and not on the endpoints.
func (q *Queries) defineLabels(g *query.Graph) {
	same := func(a, b [][]mesh.Label) bool { return slices.EqualFunc(a, b, slices.Equal) }
	q.inlineLabels = query.Define(g, "endpointLabels", same, func(r *query.Reader, k api.Key) ([][]mesh.Label, bool) {
		e, ok := q.tables.Endpoints.Get(r, k)
		if !ok {
			return nil, false
		}
		return e.LabelSets(), true
	})
	q.selectedLabels = query.GroupBy(g, "selectedLabels", q.Selected, func(s Selected, add func(mesh.Label, omap.Name)) {
		for name, value := range s.Labels {
			add(mesh.Label{Name: name, Value: value}, omap.Name(s.name))
		}
	})
}

// Missing returns the labels of a subset that leave it without endpoints: one that no endpoint of the service has, or else all
// of them if each is on some endpoint, but no endpoint has them together. It returns none if some endpoint has them all, or may
// have them. Labels that tell where an endpoint runs are not checked.
func (q *Queries) Missing(r *query.Reader, s *Service, labels map[string]string) []mesh.Label {
	wanted := slices.DeleteFunc(mesh.SortedLabels(labels), func(l mesh.Label) bool { return mesh.IsPlaceLabel(l.Name) })
	if q.has(r, s, wanted) {
		return nil
	}
	for _, l := range wanted {
		if one := []mesh.Label{l}; !q.has(r, s, one) {
			return one
		}
	}
	return wanted
}

// has reports whether any endpoint of a service has all of some labels, or may have them.
func (q *Queries) has(r *query.Reader, s *Service, labels []mesh.Label) bool {
	if len(labels) == 0 {
		return true
	}
	for _, part := range s.Parts {
		sets, _ := q.inlineLabels.Get(r, part.Object)
		if slices.ContainsFunc(sets, func(set []mesh.Label) bool { return hasAll(set, labels) }) {
			return true
		}
		who, ok := q.tables.Identities.Get(r, part.Object)
		if !ok || len(who.Selector) == 0 {
			continue
		}
		var groups []omap.Map[omap.Name, omap.Unit]
		for _, l := range labels {
			groups = append(groups, q.selectedLabels.Group(r, Select(part.Object.Namespace, who.Selector), l))
		}
		if intersect(groups) {
			return true
		}
	}
	return false
}

// hasAll reports whether a set of labels, in order, has all of some labels, or is that of a crowded object.
func hasAll(set, labels []mesh.Label) bool {
	if len(set) > 0 && set[0] == state.AnyLabel() {
		return true
	}
	return !slices.ContainsFunc(labels, func(l mesh.Label) bool {
		_, found := slices.BinarySearchFunc(set, l, mesh.Label.Compare)
		return !found
	})
}

// Declared reports whether a namespace may have a workload with all of some labels: a WorkloadEntry has each, or an endpoint
// of a ServiceEntry.
func (q *Queries) Declared(r *query.Reader, namespace string, labels map[string]string) bool {
	if q.tables.InlineByLabel.Group(r, state.LabelIn{Namespace: namespace, Label: state.AnyLabel()}).Len() > 0 {
		return true
	}
	for _, having := range []*store.Index[state.LabelIn, api.Key]{q.tables.WorkloadsByLabel, q.tables.InlineByLabel} {
		lacking := func(l mesh.Label) bool {
			return having.Group(r, state.LabelIn{Namespace: namespace, Label: l}).Len() == 0
		}
		if !slices.ContainsFunc(mesh.SortedLabels(labels), lacking) {
			return true
		}
	}
	return false
}

// maxLooked bounds how many workloads are compared with labels.
const maxLooked = 100

// intersect reports whether some key is in all groups, of which there is at least one. It gives up after maxLooked keys, and
// assumes that there is such a key.
func intersect[K omap.Key[K]](groups []omap.Map[K, omap.Unit]) bool {
	slices.SortFunc(groups, func(a, b omap.Map[K, omap.Unit]) int { return a.Len() - b.Len() })
	looked := 0
	for k := range groups[0].All() {
		if looked++; looked > maxLooked || !slices.ContainsFunc(groups[1:], func(g omap.Map[K, omap.Unit]) bool { return !g.Has(k) }) {
			return true
		}
	}
	return false
}

// Selects reports whether some WorkloadEntry of a namespace has all of a selector's labels, or may have.
func (q *Queries) Selects(r *query.Reader, namespace string, selector map[string]string) bool {
	var groups []omap.Map[api.Key, omap.Unit]
	for _, l := range mesh.SortedLabels(selector) {
		groups = append(groups, q.tables.WorkloadsByLabel.Group(r, state.LabelIn{Namespace: namespace, Label: l}))
	}
	return intersect(groups)
}

// SelectedBy reports whether some ServiceEntry of a WorkloadEntry's namespace selects it, or may do so.
func (q *Queries) SelectedBy(r *query.Reader, k api.Key, labels map[string]string) bool {
	looked := 0
	for _, l := range mesh.SortedLabels(labels) {
		for object := range q.tables.SelectorsByLabel.Group(r, state.LabelIn{Namespace: k.Namespace, Label: l}).All() {
			if looked++; looked > maxLooked {
				return true
			}
			if who, ok := q.tables.Identities.Get(r, object); ok && mesh.Selects(who.Selector, labels) {
				return true
			}
		}
	}
	return false
}
