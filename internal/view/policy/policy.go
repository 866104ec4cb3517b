// Package policy answers which AuthorizationPolicies and RequestAuthentications apply to a workload.
//
// Policies of a namespace without a selector apply to all its workloads, and such policies of the root namespace to all
// workloads of the mesh. No class has these as a facet: they follow from the namespace, so that a policy for many
// workloads moves no proxy to another class. Policies with a selector are a facet of the class, in one interned list:
// equal lists are one value. A policy with targets applies to the gateways of its namespace that have the name of one in their label, and to no
// other proxy.
//
// Everything here is a pure function of rows. The package starts no goroutines.
package policy

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Keys is a set of policies.
type Keys = omap.Map[api.Key, omap.Unit]

// Set names the policies that apply to some workloads. The policies of the root namespace without a selector are always among them.
type Set struct {
	// Namespace is the namespace of the workloads. It is empty if no policy applies to all workloads of their namespace.
	Namespace string
	// Selected are the policies that select the workloads, sorted.
	Selected intern.List[api.Key]
}

// Selecting returns the policies of a workload's namespace, and of the root namespace, that select it by labels.
func Selecting(t *state.Tables, r *query.Reader, namespace string, labels mesh.Labels) intern.List[api.Key] {
	var found []api.Key
	for _, ns := range namespaces(t, r, namespace) {
		for l := range labels.All() {
			for p := range t.Security.ByLabel.Group(r, selected.LabelIn{Namespace: ns, Label: l}).All() {
				if p.Selects(namespace, labels) {
					found = append(found, p.Key)
				}
			}
		}
	}
	slices.SortFunc(found, api.Key.Compare)
	return intern.Of(found...)
}

// SetOf returns the policies that apply to the workloads of a class. Classes to which the same policies apply have equal sets.
func SetOf(t *state.Tables, r *query.Reader, c proxy.Class) Set {
	s := Set{Selected: c.Policies}
	if c.Namespace != t.RootNamespace(r) && t.Security.ForAll.Group(r, c.Namespace).Len() > 0 {
		s.Namespace = c.Namespace
	}
	return s
}

// Members returns the policies of a set that are of a kind.
func (s Set) Members(t *state.Tables, r *query.Reader, kind string) Keys {
	var all []omap.Change[api.Key, omap.Unit]
	add := func(k api.Key) {
		if k.Kind == kind {
			all = append(all, omap.Put(k, omap.Unit{}))
		}
	}
	for k := range t.Security.ForAll.Group(r, t.RootNamespace(r)).All() {
		add(k)
	}
	if s.Namespace != "" {
		for k := range t.Security.ForAll.Group(r, s.Namespace).All() {
			add(k)
		}
	}
	for k := range s.Selected.All() {
		add(k)
	}
	return omap.With(Keys{}, all...)
}

// RefersToServices reports whether some policy of the set refers to the service of a provider, or to one that proxies fetch keys from.
func RefersToServices(t *state.Tables, r *query.Reader, s Set) bool {
	root := t.RootNamespace(r)
	for _, forAll := range []store.Index[string, api.Key]{t.Security.CustomForAll, t.Security.FetchingForAll} {
		if forAll.Group(r, root).Len() > 0 || s.Namespace != "" && forAll.Group(r, s.Namespace).Len() > 0 {
			return true
		}
	}
	for k := range s.Selected.All() {
		if t.Security.CustomSelecting.Group(r, k.Namespace).Has(k) || t.Security.FetchingSelecting.Group(r, k.Namespace).Has(k) {
			return true
		}
	}
	return false
}

// namespaces are the namespaces whose policies may select a workload.
func namespaces(t *state.Tables, r *query.Reader, namespace string) []string {
	if root := t.RootNamespace(r); root != namespace {
		return []string{namespace, root}
	}
	return []string{namespace}
}
