package class

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

// bootstrapLayer are the queries for what patches add to the bootstrap of Envoys. All classes to which the same patches apply share the result.
type bootstrapLayer struct {
	patches *patches
	outcome query.Query[patchSet, []*outcome]
}

// bootstrapStack is the stack of what patches add to the bootstrap. A class to which no such patch applies has no layer.
func (q *Queries) bootstrapStack(g *query.Graph) stack {
	b := bootstrapLayer{patches: &q.patches}
	b.outcome = query.Define(g, "bootstrap.outcome", layer.Equal[*outcome], func(r *query.Reader, k patchSet) ([]*outcome, bool) {
		o := &outcome{name: bootstrapName}
		take(o, resource.Bootstrap, patch.Bootstrap(q.patches.list(r, k)))
		return []*outcome{o}, o.any()
	})
	all := query.Define(g, "bootstrap", Map.Equal, func(r *query.Reader, k patchSet) (m Map, _ bool) {
		list, _ := b.outcome.Get(r, k)
		for _, o := range list {
			if o.resource != nil {
				m = omap.With(m, omap.Put(omap.Name(bootstrapName), o.resource))
			}
		}
		return m, true
	})
	l := fromCell("patches", SharedByScope, all, b.key)
	l.effects, l.difference = b.effects, b.difference
	return stack{l}
}

// key are the patches of the bootstrap that apply to a class.
func (b bootstrapLayer) key(r *query.Reader, c proxy.Class) (patchSet, bool) {
	of := patchable{typ: resource.Bootstrap, contexts: contextsOf(networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND)}
	set := b.patches.of(r, c, of.subjectFor(c))
	return set, !set.Empty()
}

func (b bootstrapLayer) effects(r *query.Reader, c proxy.Class) (all omap.Map[effect, omap.Unit]) {
	set, ok := b.key(r, c)
	if !ok {
		return all
	}
	list, _ := b.outcome.Get(r, set)
	for _, o := range list {
		o.each(func(e effect, _ omap.Name) { all = omap.With(all, omap.Put(e, omap.Unit{})) })
	}
	return all
}

// difference returns what the patches of an EnvoyFilter add.
func (b bootstrapLayer) difference(r *query.Reader, c proxy.Class, filter api.Key) []PatchEffect {
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
