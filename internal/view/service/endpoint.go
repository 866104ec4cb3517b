package service

import (
	"slices"
	"strconv"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// Selection names the workloads of a namespace that have all of the labels.
type Selection struct {
	Namespace string
	Labels    mesh.Labels
}

// Select returns the selection of a selector in a namespace.
func Select(namespace string, selector map[string]string) Selection {
	return Selection{namespace, intern.Of(mesh.SortedLabels(selector)...)}
}

// SelectedEndpoint is a selected workload as an endpoint.
type SelectedEndpoint struct {
	name string
	hash omap.Hash
	mesh.Endpoint
}

// OutputName is the name of the WorkloadEntry.
func (s SelectedEndpoint) OutputName() string { return s.name }

// ContentHash covers the endpoint.
func (s SelectedEndpoint) ContentHash() omap.Hash { return s.hash }

// Size is 0 because an endpoint is not sent by itself.
func (SelectedEndpoint) Size() int { return 0 }

func newSelectedEndpoint(k api.Key, e mesh.Endpoint) SelectedEndpoint {
	b := make([]byte, 0, 128)
	text := func(s string) { b = append(append(b, s...), 0) }
	text(e.Address)
	text(e.Locality.String())
	text(e.Network)
	text(e.ServiceAccount)
	b = strconv.AppendUint(b, uint64(e.Weight), 10)
	b = strconv.AppendBool(b, e.Unhealthy)
	for _, l := range mesh.SortedLabels(e.Labels) {
		b = l.AppendTo(b)
	}
	b = append(b, 1)
	for _, name := range slices.Sorted(keys(e.Ports)) {
		text(name)
		b = strconv.AppendUint(b, uint64(e.Ports[name]), 10)
	}
	return SelectedEndpoint{k.Name, omap.Sum(b), e}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

type selectedKey struct {
	Selection
	workload api.Key
}

// defineSelected defines one cell per selected workload, so that a change of one workload costs one cell.
func (q *Queries) defineSelected(g *query.Graph) {
	same := func(a, b []SelectedEndpoint) bool {
		return slices.EqualFunc(a, b, func(a, b SelectedEndpoint) bool { return a.name == b.name && a.hash == b.hash })
	}
	elem := query.Define(g, "selectedWorkload", same, func(r *query.Reader, k selectedKey) ([]SelectedEndpoint, bool) {
		e, ok := q.tables.Workloads.Get(r, k.workload)
		if !ok {
			return nil, false
		}
		for l := range k.Labels.All() {
			if got, ok := e.Labels[l.Name]; !ok || got != l.Value {
				return nil, false
			}
		}
		return []SelectedEndpoint{newSelectedEndpoint(k.workload, e)}, true
	})
	q.SelectedEndpoints = query.Each(g, "selected", q.workloadsWithRarestLabel, elem, func(s Selection, w api.Key) selectedKey {
		return selectedKey{s, w}
	})
}

// workloadsWithRarestLabel are the workloads that have that label of the selection which the fewest workloads have. They
// include all selected workloads.
func (q *Queries) workloadsWithRarestLabel(r *query.Reader, s Selection) omap.Map[api.Key, omap.Unit] {
	var least omap.Map[api.Key, omap.Unit]
	first := true
	for l := range s.Labels.All() {
		m := q.tables.WorkloadsByLabel.Group(r, state.LabelIn{Namespace: s.Namespace, Label: l})
		if first || m.Len() < least.Len() {
			least, first = m, false
		}
	}
	return least
}

// Endpoints are the endpoints of a service for one of its ports, in the order of the declarations.
func (q *Queries) Endpoints(r *query.Reader, s *Service, port uint32) []mesh.PortEndpoint {
	var out []mesh.PortEndpoint
	for _, part := range s.Parts {
		p, ok := part.Spec.Port(port)
		if !ok {
			continue
		}
		e, ok := q.tables.Endpoints.Get(r, part.Object)
		if !ok {
			continue
		}
		out = slices.Grow(out, len(e.Inline))
		for i := range e.Inline {
			out = append(out, mesh.PortEndpoint{Endpoint: &e.Inline[i], Port: e.Inline[i].Port(p)})
		}
		if len(e.Selector) == 0 {
			continue
		}
		for _, w := range q.SelectedEndpoints.Get(r, Select(part.Object.Namespace, e.Selector)).All() {
			out = append(out, mesh.PortEndpoint{Endpoint: &w.Endpoint, Port: w.Endpoint.Port(p)})
		}
	}
	return out
}
