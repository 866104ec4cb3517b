package service

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// defineLabels defines the queries for the labels of endpoints. A query that asks for some labels depends on these labels
// alone, not on the endpoints.
func (q *Queries) defineLabels(g *query.Graph) {
	same := func(a, b [][]mesh.Label) bool { return slices.EqualFunc(a, b, slices.Equal) }
	q.inlineLabels = query.Define(g, "endpointLabels", same, func(r *query.Reader, k api.Key) ([][]mesh.Label, bool) {
		e, ok := q.tables.Endpoints.Get(r, k)
		if !ok {
			return nil, false
		}
		return e.LabelSets(), true
	})
	of := func(s SelectedEndpoint, add func(mesh.Label, omap.Name)) {
		for label := range s.Labels.All() {
			add(label, omap.Name(s.name))
		}
	}
	q.selectedLabels = query.GroupBy(g, "selectedLabels", q.SelectedEndpoints, of)
	q.podLabels = query.GroupBy(g, "podLabels", q.selectedPods, of)
	q.sliceLabels = query.GroupBy(g, "sliceLabels", q.sliceEndpoints, of)
}

// MissingLabels returns the labels of a subset that leave it without endpoints. If no endpoint of the service has one
// of the labels, it returns that label. If each label is on some endpoint, but no endpoint has them all, it returns all
// of them. It returns none if some endpoint has them all, or may have them. Labels that say where an endpoint runs are
// skipped.
func (q *Queries) MissingLabels(r *query.Reader, s *Service, labels map[string]string) []mesh.Label {
	wanted := slices.DeleteFunc(mesh.SortedLabels(labels), func(l mesh.Label) bool { return mesh.IsPlaceLabel(l.Name) })
	if q.hasLabels(r, s, wanted) {
		return nil
	}
	for _, l := range wanted {
		if one := []mesh.Label{l}; !q.hasLabels(r, s, one) {
			return one
		}
	}
	return wanted
}

// hasLabels reports whether any endpoint of a service has all of the labels, or may have them.
func (q *Queries) hasLabels(r *query.Reader, s *Service, labels []mesh.Label) bool {
	if len(labels) == 0 {
		return true
	}
	for _, declaration := range s.Declarations {
		sets, _ := q.inlineLabels.Get(r, declaration.Object)
		if slices.ContainsFunc(sets, func(set []mesh.Label) bool { return hasAll(set, labels) }) {
			return true
		}
		who, ok := q.tables.Identities.Get(r, declaration.Object)
		if !ok {
			continue
		}
		read := besides[bool]{
			slices: func(k api.Key) bool {
				return intersectAll(labels, func(l mesh.Label) names { return q.sliceLabels.Group(r, k, l) })
			},
			workloads: func(s Selection) bool {
				return intersectAll(labels, func(l mesh.Label) names { return q.selectedLabels.Group(r, s, l) })
			},
			pods: func(s Selection) bool {
				return intersectAll(labels, func(l mesh.Label) names { return q.podLabels.Group(r, s, l) })
			},
		}
		for found := range read.of(declaration, who.Selector) {
			if found {
				return true
			}
		}
		if q.templateHas(r, declaration.Object, labels) {
			return true
		}
	}
	return false
}

// templateHas reports whether a Service of a file selects a workload that has labels, or may select one: the workload may have no address yet. If
// no file has a workload that the Service selects, or if it has no selector, its endpoints may have any labels.
func (q *Queries) templateHas(r *query.Reader, k api.Key, labels []mesh.Label) bool {
	s, ok := q.tables.Kube.Services.Get(r, k)
	if !ok || !s.Written {
		return false
	}
	all := mesh.LabelMap(s.Selector)
	if len(all) == 0 {
		return true
	}
	for _, l := range labels {
		if has, ok := all[l.Name]; ok && has != l.Value {
			return false
		}
	}
	if !q.hasPod(r, k.Namespace, all) {
		return true
	}
	all = maps.Clone(all)
	for _, l := range labels {
		all[l.Name] = l.Value
	}
	return q.hasPod(r, k.Namespace, all)
}

type names = omap.Map[omap.Name, omap.Unit]

// intersectAll reports whether some endpoint is in the groups of all labels.
func intersectAll(labels []mesh.Label, group func(mesh.Label) names) bool {
	groups := make([]names, 0, len(labels))
	for _, l := range labels {
		groups = append(groups, group(l))
	}
	return intersect(groups)
}

// hasAll reports whether a sorted set of labels has all of the other labels. It is true if the set is state.AnyLabel
// alone: the set of an object with too many endpoints to list their labels.
func hasAll(set, labels []mesh.Label) bool {
	if len(set) > 0 && set[0] == state.AnyLabel() {
		return true
	}
	return !slices.ContainsFunc(labels, func(l mesh.Label) bool {
		_, found := slices.BinarySearchFunc(set, l, mesh.Label.Compare)
		return !found
	})
}

// MayHaveWorkload reports whether a namespace may have a workload with all of the labels: some pod has them all, each is on some
// WorkloadEntry, or each is on some endpoint of a ServiceEntry.
func (q *Queries) MayHaveWorkload(r *query.Reader, namespace string, labels map[string]string) bool {
	if q.tables.InlineByLabel.Group(r, selected.LabelIn{Namespace: namespace, Label: state.AnyLabel()}).Len() > 0 {
		return true
	}
	if q.hasPod(r, namespace, labels) {
		return true
	}
	for _, having := range []store.Index[selected.LabelIn, api.Key]{q.tables.WorkloadsByLabel, q.tables.InlineByLabel} {
		if eachLabelIn(r, having, namespace, labels) {
			return true
		}
	}
	return false
}

// MayHaveWorkloadAnywhere reports whether some namespace may have a workload with all of the labels. Endpoints that a ServiceEntry lists
// in such numbers that their labels are not known count for the namespace of the asking object only.
func (q *Queries) MayHaveWorkloadAnywhere(r *query.Reader, namespace string, labels map[string]string) bool {
	if q.MayHaveWorkload(r, namespace, labels) || q.hasPod(r, "", labels) {
		return true
	}
	for _, having := range []store.Index[selected.LabelIn, api.Key]{q.tables.WorkloadsByLabel, q.tables.InlineByLabel} {
		if eachLabelIn(r, having, "", labels) {
			return true
		}
	}
	return false
}

// eachLabelIn reports whether an index lists objects of a namespace, or of all if it is empty, for each of the labels.
func eachLabelIn(r *query.Reader, having store.Index[selected.LabelIn, api.Key], namespace string, labels map[string]string) bool {
	return !slices.ContainsFunc(mesh.SortedLabels(labels), func(l mesh.Label) bool {
		return having.Group(r, selected.LabelIn{Namespace: namespace, Label: l}).Len() == 0
	})
}

// hasPod reports whether some pod of a namespace, or of any if it is empty, has all labels of a selector.
func (q *Queries) hasPod(r *query.Reader, namespace string, selector map[string]string) bool {
	labels := mesh.SortedLabels(selector)
	if len(labels) == 0 {
		return false
	}
	for set := range q.tables.Kube.LabelSets.Group(r, selected.LabelIn{Namespace: namespace, Label: labels[0]}).All() {
		if mesh.HasAll(set.Labels, selector) {
			return true
		}
	}
	return false
}

// maxCompared bounds how many workloads are compared with labels. Beyond it the answer is that one may match.
const maxCompared = 100

// intersect reports whether some key is in all of the groups; there must be at least one group. After maxCompared keys
// it assumes that there is such a key.
func intersect[K omap.Key[K]](groups []omap.Map[K, omap.Unit]) bool {
	slices.SortFunc(groups, func(a, b omap.Map[K, omap.Unit]) int { return a.Len() - b.Len() })
	compared := 0
	for k := range groups[0].All() {
		if compared++; compared > maxCompared || !slices.ContainsFunc(groups[1:], func(g omap.Map[K, omap.Unit]) bool { return !g.Has(k) }) {
			return true
		}
	}
	return false
}

// SelectsWorkload reports whether some WorkloadEntry or pod of a namespace has all labels of a selector, or may have them. The
// selector is not empty.
func (q *Queries) SelectsWorkload(r *query.Reader, namespace string, selector map[string]string) bool {
	if q.hasPod(r, namespace, selector) {
		return true
	}
	var groups []omap.Map[api.Key, omap.Unit]
	for _, l := range mesh.SortedLabels(selector) {
		groups = append(groups, q.tables.WorkloadsByLabel.Group(r, selected.LabelIn{Namespace: namespace, Label: l}))
	}
	return intersect(groups)
}

// IsSelected reports whether some ServiceEntry of its namespace selects a WorkloadEntry, or may select it.
func (q *Queries) IsSelected(r *query.Reader, k api.Key, labels mesh.Labels) bool {
	compared := 0
	for l := range labels.All() {
		for object := range q.tables.SelectorsByLabel.Group(r, selected.LabelIn{Namespace: k.Namespace, Label: l}).All() {
			if compared++; compared > maxCompared {
				return true
			}
			if who, ok := q.tables.Identities.Get(r, object); ok && mesh.HasAll(labels, who.Selector) {
				return true
			}
		}
	}
	return false
}

// someInline returns labels of the inline endpoints of an object, for messages. Of a crowded object it returns none.
func (q *Queries) someInline(r *query.Reader, k api.Key) (all []mesh.Label) {
	sets, _ := q.inlineLabels.Get(r, k)
	for _, set := range sets {
		for _, l := range set {
			if l != state.AnyLabel() && !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

// SomeLabels returns labels of endpoints of a service, for messages: labels of inline endpoints, and of the first
// WorkloadEntries and pods that it selects.
func (q *Queries) SomeLabels(r *query.Reader, s *Service) (all []mesh.Label) {
	for _, declaration := range s.Declarations {
		all = append(all, q.someInline(r, declaration.Object)...)
		who, ok := q.tables.Identities.Get(r, declaration.Object)
		if !ok {
			continue
		}
		read := besides[[]mesh.Label]{
			slices:    func(k api.Key) []mesh.Label { return firstLabels(q.sliceEndpoints.Get(r, k)) },
			workloads: func(s Selection) []mesh.Label { return firstLabels(q.SelectedEndpoints.Get(r, s)) },
			pods:      func(s Selection) []mesh.Label { return firstLabels(q.selectedPods.Get(r, s)) },
		}
		for labels := range read.of(declaration, who.Selector) {
			all = append(all, labels...)
		}
	}
	return all
}

// firstLabels returns the labels of the first few endpoints.
func firstLabels(endpoints omap.Map[omap.Name, SelectedEndpoint]) (all []mesh.Label) {
	const few = 16
	checked := 0
	for _, e := range endpoints.All() {
		if checked++; checked > few {
			break
		}
		for l := range e.Labels.All() {
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

// ListPorts lists ports by number, with their names: 80 (http), 443.
func ListPorts(ports []mesh.Port) string {
	sorted := slices.SortedStableFunc(slices.Values(ports), func(a, b mesh.Port) int { return cmp.Compare(a.Number, b.Number) })
	var texts []string
	for i, p := range sorted {
		if i > 0 && sorted[i-1].Number == p.Number {
			continue
		}
		text := strconv.FormatUint(uint64(p.Number), 10)
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
