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

// defineLabels defines the queries for the labels of endpoints. A query that asks for one label depends on that label
// alone, not on the endpoints.
func (q *Queries) defineLabels(g *query.Graph) {
	q.inlineLabels = query.Define(g, "endpointLabels", slices.Equal[[]mesh.Label], func(r *query.Reader, k api.Key) ([]mesh.Label, bool) {
		e, ok := q.tables.Endpoints.Get(r, k)
		if !ok {
			return nil, false
		}
		return e.Labels(), true
	})
	q.selectedLabels = query.GroupBy(g, "selectedLabels", q.SelectedEndpoints, func(s SelectedEndpoint, add func(mesh.Label, omap.Name)) {
		for name, value := range s.Labels {
			add(mesh.Label{Name: name, Value: value}, omap.Name(s.name))
		}
	})
}

// MissingLabel is the first of the labels that no endpoint of a service has. ok is false if there is no such label.
// Labels that say where an endpoint runs are skipped.
func (q *Queries) MissingLabel(r *query.Reader, s *Service, labels map[string]string) (mesh.Label, bool) {
	for _, l := range mesh.SortedLabels(labels) {
		if !mesh.SaysPlace(l.Name) && !q.hasLabel(r, s, l) {
			return l, true
		}
	}
	return mesh.Label{}, false
}

// hasLabel reports whether any endpoint of a service has the label.
func (q *Queries) hasLabel(r *query.Reader, s *Service, label mesh.Label) bool {
	for _, part := range s.Parts {
		labels, _ := q.inlineLabels.Get(r, part.Object)
		if _, found := slices.BinarySearchFunc(labels, label, mesh.Label.Compare); found || len(labels) > 0 && labels[0] == state.AnyLabel() {
			return true
		}
		who, ok := q.tables.Identities.Get(r, part.Object)
		if ok && len(who.Selector) > 0 && q.selectedLabels.Group(r, Select(part.Object.Namespace, who.Selector), label).Len() > 0 {
			return true
		}
	}
	return false
}

// MayHaveWorkload reports whether a namespace may have a workload with all of the labels: each is on some WorkloadEntry,
// or each is on some endpoint of a ServiceEntry.
func (q *Queries) MayHaveWorkload(r *query.Reader, namespace string, labels map[string]string) bool {
	if q.tables.Labelled.Group(r, state.LabelIn{Namespace: namespace, Label: state.AnyLabel()}).Len() > 0 {
		return true
	}
	for _, having := range []*store.Index[state.LabelIn, api.Key]{q.tables.WorkloadsByLabel, q.tables.Labelled} {
		lacking := func(l mesh.Label) bool {
			return having.Group(r, state.LabelIn{Namespace: namespace, Label: l}).Len() == 0
		}
		if !slices.ContainsFunc(mesh.SortedLabels(labels), lacking) {
			return true
		}
	}
	return false
}

// maxCompared bounds how many workloads are compared with a selector. Beyond it the answer is that one may match.
const maxCompared = 100

// SelectsWorkload reports whether some WorkloadEntry of a namespace has all labels of a selector, or may have them. The
// selector is not empty.
func (q *Queries) SelectsWorkload(r *query.Reader, namespace string, selector map[string]string) bool {
	var groups []omap.Map[api.Key, omap.Unit]
	for _, l := range mesh.SortedLabels(selector) {
		groups = append(groups, q.tables.WorkloadsByLabel.Group(r, state.LabelIn{Namespace: namespace, Label: l}))
	}
	slices.SortFunc(groups, func(a, b omap.Map[api.Key, omap.Unit]) int { return a.Len() - b.Len() })
	compared := 0
	for k := range groups[0].All() {
		if compared++; compared > maxCompared || !slices.ContainsFunc(groups[1:], func(g omap.Map[api.Key, omap.Unit]) bool { return !g.Has(k) }) {
			return true
		}
	}
	return false
}

// IsSelected reports whether some ServiceEntry of its namespace selects a WorkloadEntry, or may select it.
func (q *Queries) IsSelected(r *query.Reader, k api.Key, labels map[string]string) bool {
	compared := 0
	for _, l := range mesh.SortedLabels(labels) {
		for object := range q.tables.SelectorsByLabel.Group(r, state.LabelIn{Namespace: k.Namespace, Label: l}).All() {
			if compared++; compared > maxCompared {
				return true
			}
			if who, ok := q.tables.Identities.Get(r, object); ok && mesh.Selects(who.Selector, labels) {
				return true
			}
		}
	}
	return false
}
