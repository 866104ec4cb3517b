// Package filter answers which EnvoyFilters apply to a workload.
//
// EnvoyFilters of a namespace without a selector apply to all its workloads, and such EnvoyFilters of the root namespace to all workloads of
// the mesh. No class has these as a facet: they follow from the namespace. EnvoyFilters with a selector are a facet of the class, and so are
// the conditions of patches about the version or the metadata of proxies, as far as a proxy fulfils them. An EnvoyFilter with targets applies
// to the proxies of Gateways of the Gateway API in its namespace: they have a label with the name of their Gateway.
//
// Everything here is a pure function of rows. The package starts no goroutines.
package filter

import (
	"cmp"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Set names the EnvoyFilters of some workloads, without order.
type Set struct {
	Namespace string
	Selected  intern.List[api.Key]
}

// SetOf returns the EnvoyFilters of a class. Classes to which the same EnvoyFilters apply have equal sets.
func SetOf(t *state.Tables, r *query.Reader, c proxy.Class) Set {
	s := Set{Selected: c.Filters}
	if c.Namespace != t.RootNamespace(r) && t.Filters.ForAll.Group(r, c.Namespace).Len() > 0 {
		s.Namespace = c.Namespace
	}
	return s
}

// Selecting returns the EnvoyFilters of a workload's namespace, and of the root namespace, that select it by labels.
func Selecting(t *state.Tables, r *query.Reader, namespace string, labels mesh.Labels) intern.List[api.Key] {
	var found []api.Key
	for _, ns := range namespaces(t, r, namespace) {
		for l := range labels.All() {
			for f := range t.Filters.ByLabel.Group(r, selected.LabelIn{Namespace: ns, Label: l}).All() {
				if f.Selects(namespace, labels) {
					found = append(found, f.Key)
				}
			}
		}
	}
	slices.SortFunc(found, api.Key.Compare)
	return intern.Of(found...)
}

// maxConditional bounds how many EnvoyFilters of a namespace with conditions are compared with a proxy.
const maxConditional = 60

// Conditions returns the conditions that a proxy fulfils, among those in the EnvoyFilters that apply to its workload. They are in order.
func Conditions(t *state.Tables, r *query.Reader, p *proxy.Proxy, selecting intern.List[api.Key]) intern.List[proxy.Condition] {
	var found []proxy.Condition
	for _, ns := range namespaces(t, r, p.Namespace) {
		read := 0
		for k := range t.Filters.ConditionalIn.Group(r, ns).All() {
			if read++; read > maxConditional {
				break
			}
			if !selecting.Has(k) && !t.Filters.ForAll.Group(r, ns).Has(k) {
				continue
			}
			of, _ := t.Filters.Conditions.Get(r, k)
			for c := range of.All() {
				if c.Holds(p) {
					found = append(found, c)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b proxy.Condition) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), mesh.CompareLabels(a.Metadata, b.Metadata))
	})
	return intern.Of(slices.Compact(found)...)
}

// Max bounds how many EnvoyFilters apply to one workload.
const Max = 90

// Ordered returns the EnvoyFilters of a set in the order in which they are applied: by priority, then the root namespace, then by
// age and name.
func Ordered(t *state.Tables, r *query.Reader, s Set) []api.Key {
	type placed struct {
		key   api.Key
		order state.FilterOrder
	}
	root := t.RootNamespace(r)
	var list []placed
	add := func(k api.Key) {
		if len(list) == Max {
			return
		}
		if order, ok := t.Filters.Orders.Get(r, k); ok {
			list = append(list, placed{k, order})
		}
	}
	for k := range t.Filters.ForAll.Group(r, root).All() {
		add(k)
	}
	if s.Namespace != "" {
		for k := range t.Filters.ForAll.Group(r, s.Namespace).All() {
			add(k)
		}
	}
	for k := range s.Selected.All() {
		add(k)
	}
	slices.SortFunc(list, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.order.Priority, b.order.Priority), rank(a.key, root)-rank(b.key, root), a.order.Compare(b.order), a.key.Compare(b.key))
	})
	keys := make([]api.Key, 0, len(list))
	for _, p := range list {
		keys = append(keys, p.key)
	}
	return keys
}

// rank puts the EnvoyFilters of the root namespace before others.
func rank(k api.Key, root string) int {
	if k.Namespace == root {
		return 0
	}
	return 1
}

// namespaces are the namespaces whose EnvoyFilters may select a workload.
func namespaces(t *state.Tables, r *query.Reader, namespace string) []string {
	if root := t.RootNamespace(r); root != namespace {
		return []string{namespace, root}
	}
	return []string{namespace}
}
