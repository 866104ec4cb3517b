package service

import (
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// defineLabels adds the queries that tell which labels endpoints have, so that whoever asks for one label depends on that
// alone, and not on the endpoints.
func (q *Queries) defineLabels(g *query.Graph) {
	q.inlineLabels = query.Define(g, "endpointLabels", slices.Equal[[]string], func(r *query.Reader, k api.Key) ([]string, bool) {
		e, ok := q.tables.Endpoints.Get(r, k)
		if !ok {
			return nil, false
		}
		return e.LabelPairs(), true
	})
	q.selectedLabels = query.GroupBy(g, "selectedLabels", q.Selected, func(s Selected, add func(omap.Name, omap.Name)) {
		for name, value := range s.Labels {
			add(omap.Name(mesh.LabelPair(name, value)), omap.Name(s.name))
		}
	})
}

// Missing is the label, of some, that no endpoint of a service has, as "key=value"; empty if there is none such. Labels that
// say where an endpoint runs are not looked at.
func (q *Queries) Missing(r *query.Reader, s *Service, labels map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if pair := mesh.LabelPair(name, labels[name]); !mesh.SaysPlace(name) && !q.has(r, s, pair) {
			return pair
		}
	}
	return ""
}

// has reports whether any endpoint of a service has a label.
func (q *Queries) has(r *query.Reader, s *Service, pair string) bool {
	for _, part := range s.Parts {
		pairs, _ := q.inlineLabels.Get(r, part.Object)
		if _, found := slices.BinarySearch(pairs, pair); found || len(pairs) > 0 && pairs[0] == state.AnyLabel {
			return true
		}
		who, ok := q.tables.Identities.Get(r, part.Object)
		if ok && len(who.Selector) > 0 && q.selectedLabels.Group(r, Select(part.Object.Namespace, who.Selector), omap.Name(pair)).Len() > 0 {
			return true
		}
	}
	return false
}

// Declared reports whether a namespace may have a workload with all of some labels: a WorkloadEntry has each, or an endpoint
// of a ServiceEntry.
func (q *Queries) Declared(r *query.Reader, namespace string, labels map[string]string) bool {
	if q.tables.Labelled.Group(r, state.InNamespace{Namespace: namespace, Of: state.AnyLabel}).Len() > 0 {
		return true
	}
	for _, find := range []func(pair string) int{
		func(pair string) int {
			return q.tables.WorkloadsByLabel.Group(r, state.InNamespace{Namespace: namespace, Of: pair}).Len()
		},
		func(pair string) int {
			return q.tables.Labelled.Group(r, state.InNamespace{Namespace: namespace, Of: pair}).Len()
		},
	} {
		if !slices.ContainsFunc(mesh.LabelPairs(labels), func(pair string) bool { return find(pair) == 0 }) {
			return true
		}
	}
	return false
}

// maxLooked bounds how many workloads are compared with a selector.
const maxLooked = 100

// Selects reports whether some WorkloadEntry of a namespace has all of a selector's labels, or may have.
func (q *Queries) Selects(r *query.Reader, namespace string, selector map[string]string) bool {
	var groups []omap.Map[api.Key, omap.Unit]
	for _, pair := range mesh.LabelPairs(selector) {
		groups = append(groups, q.tables.WorkloadsByLabel.Group(r, state.InNamespace{Namespace: namespace, Of: pair}))
	}
	slices.SortFunc(groups, func(a, b omap.Map[api.Key, omap.Unit]) int { return a.Len() - b.Len() })
	looked := 0
	for k := range groups[0].All() {
		if looked++; looked > maxLooked || !slices.ContainsFunc(groups[1:], func(g omap.Map[api.Key, omap.Unit]) bool { return !g.Has(k) }) {
			return true
		}
	}
	return false
}

// SelectedBy reports whether some ServiceEntry of a WorkloadEntry's namespace selects it, or may do so.
func (q *Queries) SelectedBy(r *query.Reader, k api.Key, labels map[string]string) bool {
	looked := 0
	for _, pair := range mesh.LabelPairs(labels) {
		for object := range q.tables.SelectorsByLabel.Group(r, state.InNamespace{Namespace: k.Namespace, Of: pair}).All() {
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
