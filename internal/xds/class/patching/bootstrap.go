package patching

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// bootstrapName is the name of the only resource of its type.
const bootstrapName = "bootstrap"

// Bootstrap are the queries for what patches add to the bootstrap of Envoys. All classes to which the same patches apply share the result.
type Bootstrap struct {
	patches *Queries
	outcome query.Query[patchSet, []*outcome]
	all     query.Query[patchSet, resources]
}

// DefineBootstrap defines the queries for what patches add to the bootstrap.
func DefineBootstrap(g *query.Graph, p *Queries) *Bootstrap {
	b := &Bootstrap{patches: p}
	b.outcome = query.Define(g, "bootstrap.outcome", layer.Equal[*outcome], func(r *query.Reader, k patchSet) ([]*outcome, bool) {
		o := &outcome{name: bootstrapName}
		take(o, resource.Bootstrap, patch.Bootstrap(p.list(r, k)))
		return []*outcome{o}, o.any()
	})
	b.all = query.Define(g, "bootstrap", resources.Equal, func(r *query.Reader, k patchSet) (m resources, _ bool) {
		list, _ := b.outcome.Get(r, k)
		for _, o := range list {
			if o.resource != nil {
				m = omap.With(m, omap.Put(omap.Name(bootstrapName), o.resource))
			}
		}
		return m, true
	})
	return b
}

// Resources are the additions for a class.
func (b *Bootstrap) Resources(r *query.Reader, c proxy.Class) (m resources, ok bool) {
	k, ok := b.key(r, c)
	if ok {
		m, _ = b.all.Get(r, k)
	}
	return m, ok
}

// Cell returns the cell that yields an addition for a class.
func (b *Bootstrap) Cell(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
	k, ok := b.key(r, c)
	if !ok {
		return 0, false
	}
	if m, _ := b.all.Get(r, k); !m.Has(name) {
		return 0, false
	}
	return b.all.Cell(k)
}

// key are the patches of the bootstrap that apply to a class.
func (b *Bootstrap) key(r *query.Reader, c proxy.Class) (patchSet, bool) {
	of := Layer{Type: resource.Bootstrap, Contexts: ContextsOf(networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND)}
	set := b.patches.of(r, c, of.subjectFor(c))
	return set, !set.Empty()
}

// Effects are the effects of the patches.
func (b *Bootstrap) Effects(r *query.Reader, c proxy.Class) (all omap.Map[Effect, omap.Unit]) {
	set, ok := b.key(r, c)
	if !ok {
		return all
	}
	list, _ := b.outcome.Get(r, set)
	for _, o := range list {
		o.each(func(e Effect, _ omap.Name) { all = omap.With(all, omap.Put(e, omap.Unit{})) })
	}
	return all
}

// Differences returns what the patches of an EnvoyFilter add.
func (b *Bootstrap) Differences(r *query.Reader, c proxy.Class, filter api.Key) []Difference {
	set, ok := b.key(r, c)
	if !ok {
		return nil
	}
	found := newComparison(resource.Bootstrap, filter, b.patches.list(r, set))
	if !found.none() {
		compare(found, bootstrapName, "", patch.Bootstrap)
	}
	return found.list
}
