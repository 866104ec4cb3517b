// Package patching applies the patches of EnvoyFilters to the layers of class states, and finds their problems.
//
// Each layer whose resources can be patched has a twin before it in its stack, which has the patched resources only. A twin is keyed by the
// layer and by the set of patches, so that it is shared wherever both are. Removed resources are hidden by the twin.
//
// The package starts no goroutines.
package patching

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/filter"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// patchSet are patches in the order in which they are applied. Equal sets are one value, so that a patched layer is shared by all classes that
// have the layer and to which the same patches apply.
type patchSet = intern.List[patch.Ref]

// subject are the patches that can be about the resources of a layer: by the objects that they patch, and the directions.
type subject struct {
	kinds    kindSet
	contexts Contexts
	// adds is true for patches that add whole resources, and false for all others.
	adds bool
}

// kindSet is a set of the values of applyTo, one bit each.
type kindSet uint32

// Contexts is a set of the values of context, one bit each.
type Contexts uint8

// resources are resources by name.
type resources = omap.Map[omap.Name, *resource.Resource]

func kindsOf(list ...networking.EnvoyFilter_ApplyTo) (s kindSet) {
	for _, k := range list {
		s |= 1 << k
	}
	return s
}

// ContextsOf returns the set of some contexts.
func ContextsOf(list ...networking.EnvoyFilter_PatchContext) (s Contexts) {
	for _, c := range list {
		s |= 1 << c
	}
	return s
}

// patchKey asks for the patches about a subject that apply to some workloads.
type patchKey struct {
	filter.Set
	conditions intern.List[proxy.Condition]
	subject
}

// outline is what the choice of a patch depends on.
type outline struct {
	index      int
	kind       networking.EnvoyFilter_ApplyTo
	contexts   Contexts
	adds       bool
	conditions intern.List[proxy.Condition] // at most one
}

// Queries are the queries for the patches of EnvoyFilters.
type Queries struct {
	tables *state.Tables
	// outlines are the patches of an EnvoyFilter, without their values.
	outlines query.Query[api.Key, []outline]
	// sets are the patches about a subject, and lists the same, decoded.
	sets  query.Query[patchKey, patchSet]
	lists query.Query[patchSet, []*patch.Patch]
	// decoded are the patches of an EnvoyFilter, decoded.
	decoded query.Query[api.Key, []*patch.Patch]
}

// Define adds the queries for the patches.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t}
	q.outlines = query.Define(g, "filterOutline", slices.Equal[[]outline], func(r *query.Reader, k api.Key) ([]outline, bool) {
		row, ok := t.Filters.Rows.Get(r, k)
		if !ok {
			return nil, false
		}
		return outlinesOf(row), true
	})
	q.decoded = query.Define(g, "filterPatches", samePatches, func(r *query.Reader, k api.Key) (list []*patch.Patch, _ bool) {
		row, ok := t.Filters.Rows.Get(r, k)
		if !ok {
			return nil, false
		}
		for i, spec := range row.Spec.GetConfigPatches() {
			list = append(list, patch.New(patch.Ref{Filter: k, Index: i}, spec))
		}
		return list, true
	})
	q.lists = query.Define(g, "patchList", samePatches, func(r *query.Reader, s patchSet) (list []*patch.Patch, _ bool) {
		for k := range s.All() {
			if of, _ := q.decoded.Get(r, k.Filter); k.Index < len(of) {
				list = append(list, of[k.Index])
			}
		}
		return list, true
	})
	q.sets = query.Define(g, "patchSet", func(a, b patchSet) bool { return a == b }, q.set)
	return q
}

func samePatches(a, b []*patch.Patch) bool {
	return slices.EqualFunc(a, b, func(a, b *patch.Patch) bool { return a.ContentHash() == b.ContentHash() })
}

func outlinesOf(row *state.EnvoyFilter) (list []outline) {
	for i, spec := range row.Spec.GetConfigPatches() {
		p := patch.Undecoded(patch.Ref{Filter: row.Object, Index: i}, spec)
		o := outline{index: i, kind: p.ApplyTo, adds: p.Adds() && patch.IsWhole(p.ApplyTo)}
		for _, c := range []networking.EnvoyFilter_PatchContext{
			networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND, networking.EnvoyFilter_GATEWAY,
		} {
			if p.In(c) {
				o.contexts |= ContextsOf(c)
			}
		}
		if c, ok := state.ConditionOf(spec); ok {
			o.conditions = intern.Of(c)
		}
		list = append(list, o)
	}
	return list
}

// set are the patches about a subject, in the order in which they are applied.
func (q *Queries) set(r *query.Reader, k patchKey) (patchSet, bool) {
	var list []patch.Ref
	for _, key := range filter.Ordered(q.tables, r, k.Set) {
		all, _ := q.outlines.Get(r, key)
		for _, o := range all {
			if !k.has(o) {
				continue
			}
			list = append(list, patch.Ref{Filter: key, Index: o.index})
		}
	}
	return intern.Of(list...), true
}

// has reports whether a patch is about the subject, and its condition is fulfilled.
func (k patchKey) has(o outline) bool {
	for c := range o.conditions.All() {
		if !k.conditions.Has(c) {
			return false
		}
	}
	return k.kinds&kindsOf(o.kind) != 0 && k.contexts&o.contexts != 0 && k.adds == o.adds
}

// of returns the patches about a subject that apply to a class.
func (q *Queries) of(r *query.Reader, c proxy.Class, s subject) patchSet {
	set, _ := q.sets.Get(r, patchKey{Set: filter.SetOf(q.tables, r, c), conditions: c.Conditions, subject: s})
	return set
}

// list returns patches, decoded.
func (q *Queries) list(r *query.Reader, s patchSet) []*patch.Patch {
	list, _ := q.lists.Get(r, s)
	return list
}

// Of returns the patches of an EnvoyFilter, in their order.
func (q *Queries) Of(r *query.Reader, k api.Key) []*patch.Patch {
	list, _ := q.decoded.Get(r, k)
	return list
}

// Extension returns the configuration of an extension that patches of EXTENSION_CONFIG add for a class.
func (q *Queries) Extension(r *query.Reader, c proxy.Class, name string) (config *corev3.TypedExtensionConfig, ok bool) {
	s := Layer{Contexts: ContextsOf(networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND)}.subjectFor(c)
	s.kinds, s.adds = kindsOf(networking.EnvoyFilter_EXTENSION_CONFIG), true
	found, _ := patch.Extensions(q.list(r, q.of(r, c, s)))
	at := slices.IndexFunc(found, func(m *corev3.TypedExtensionConfig) bool { return m.GetName() == name })
	if at < 0 {
		return nil, false
	}
	return found[at], true
}
