// Package extension answers which WasmPlugins and TrafficExtensions apply to the proxies of a class, and in which order.
//
// Extensions of a namespace without a selector apply to all its workloads, and such extensions of the root namespace to all workloads of the
// mesh. No class has these as a facet: they follow from the namespace. Extensions with a selector are a facet of the class. An extension with
// targets applies to the proxies of Gateways of the Gateway API in its namespace: they have a label with the name of their Gateway.
//
// Everything here is a pure function of rows, and knows no Envoy. The package starts no goroutines.
package extension

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

// Set names the extensions of some workloads. The ones of the root namespace without a selector are always among them.
type Set struct {
	// Namespace is the namespace of the workloads. It is empty if it has no extension for all its workloads.
	Namespace string
	// Selected are the extensions that select the workloads by labels.
	Selected intern.List[api.Key]
}

// SetOf returns the extensions of a class. Classes to which the same ones apply have equal sets.
func SetOf(t *state.Tables, r *query.Reader, c proxy.Class) Set {
	s := Set{Selected: c.Extensions}
	if c.Namespace != t.RootNamespace(r) && t.Extensions.ForAll.Group(r, c.Namespace).Len() > 0 {
		s.Namespace = c.Namespace
	}
	return s
}

// Selecting returns the extensions of a workload's namespace, and of the root namespace, that select it by labels.
func Selecting(t *state.Tables, r *query.Reader, namespace string, labels mesh.Labels) intern.List[api.Key] {
	var found []api.Key
	namespaces := []string{namespace}
	if root := t.RootNamespace(r); root != namespace {
		namespaces = append(namespaces, root)
	}
	for _, ns := range namespaces {
		for l := range labels.All() {
			for e := range t.Extensions.ByLabel.Group(r, selected.LabelIn{Namespace: ns, Label: l}).All() {
				if e.Selects(namespace, labels) {
					found = append(found, e.Key)
				}
			}
		}
	}
	slices.SortFunc(found, api.Key.Compare)
	return intern.Of(found...)
}

// Max bounds how many extensions apply to one workload.
const Max = 60

// Placed is an extension with its place.
type Placed struct {
	Key   api.Key
	Place *state.ExtensionPlace
}

// Ordered returns the extensions of a set in the order of their filters within a phase: by priority, the highest first, then by name.
func (s Set) Ordered(t *state.Tables, r *query.Reader) (list []Placed) {
	add := func(k api.Key) {
		if p, ok := t.Extensions.Places.Get(r, k); ok && len(list) < Max {
			list = append(list, Placed{k, p})
		}
	}
	for k := range t.Extensions.ForAll.Group(r, t.RootNamespace(r)).All() {
		add(k)
	}
	if s.Namespace != "" {
		for k := range t.Extensions.ForAll.Group(r, s.Namespace).All() {
			add(k)
		}
	}
	for k := range s.Selected.All() {
		add(k)
	}
	slices.SortFunc(list, func(a, b Placed) int {
		return cmp.Or(cmp.Compare(b.Place.Priority, a.Place.Priority), cmp.Compare(a.Key.Name, b.Key.Name), a.Key.Compare(b.Key))
	})
	return list
}

// Applies reports whether an extension applies to the proxies of a class.
func Applies(t *state.Tables, r *query.Reader, c proxy.Class, k api.Key) bool {
	if c.Extensions.Has(k) {
		return true
	}
	return (k.Namespace == c.Namespace || k.Namespace == t.RootNamespace(r)) && t.Extensions.ForAll.Group(r, k.Namespace).Has(k)
}
