package class

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// addedKey names the resources of a type that patches add.
type addedKey struct {
	typ     resource.Type
	patches patchSet
}

// addedLayers are the queries for the resources of a type that patches add.
type addedLayers struct {
	key      func(r *query.Reader, c proxy.Class) (addedKey, bool)
	outcomes query.Query[addedKey, []*outcome]
	all      query.Query[addedKey, Map]
	// others are the layers with the resources that are not added.
	others stack
}

// addedLayer is the layer of the resources of a type that patches add. One whose name another layer has is left out,
// unless a patch removes the other one.
func (q *Queries) addedLayer(g *query.Graph, t resource.Type, others stack) stackLayer {
	of := patchable{typ: t, contexts: contextsOf(networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND)}
	a := addedLayers{others: others, key: func(r *query.Reader, c proxy.Class) (addedKey, bool) {
		s := of.subjectFor(c)
		s.adds = true
		set := q.patches.of(r, c, s)
		return addedKey{t, set}, !set.Empty()
	}}
	a.outcomes = query.Define(g, "added "+t.Kind()+".outcomes", layer.Equal[*outcome], func(r *query.Reader, k addedKey) ([]*outcome, bool) {
		list := addedBy(t, q.patches.list(r, k.patches))
		return list, len(list) > 0
	})
	a.all = query.Define(g, "added "+t.Kind(), Map.Equal, func(r *query.Reader, k addedKey) (Map, bool) {
		list, _ := a.outcomes.Get(r, k)
		var changes []omap.Change[omap.Name, *resource.Resource]
		for _, o := range list {
			if o.resource != nil {
				changes = append(changes, omap.Put(omap.Name(o.resource.Name()), o.resource))
			}
		}
		return omap.With(Map{}, changes...), true
	})
	l := fromCell("added by patches", SharedByScope, a.all, a.key)
	l.layer, l.cell, l.effects, l.difference = a.layer, a.cell, a.effects, a.difference
	return l
}

// layer are the added resources of a class.
func (a *addedLayers) layer(r *query.Reader, c proxy.Class) (Map, bool) {
	k, ok := a.key(r, c)
	if !ok {
		return Map{}, false
	}
	all, _ := a.all.Get(r, k)
	var taken []omap.Change[omap.Name, *resource.Resource]
	for name := range all.All() {
		if a.taken(r, c, name) {
			taken = append(taken, omap.Del[omap.Name, *resource.Resource](name))
		}
	}
	return omap.With(all, taken...), true
}

// taken reports whether another layer of a class has a resource of a name.
func (a *addedLayers) taken(r *query.Reader, c proxy.Class, name omap.Name) bool {
	for _, l := range a.others {
		of, ok := l.layer(r, c)
		if !ok {
			continue
		}
		if v, has := of.Get(name); has {
			return !v.Hidden()
		}
	}
	return false
}

func (a *addedLayers) cell(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
	k, ok := a.key(r, c)
	if !ok {
		return 0, false
	}
	if all, _ := a.all.Get(r, k); !all.Has(name) || a.taken(r, c, name) {
		return 0, false
	}
	return a.all.Cell(k)
}

// nameTaken is the failure of a patch that adds a resource whose name another layer has.
const nameTaken = "the proxy has a resource of that name already: merge into it, or remove it, too"

func (a *addedLayers) effects(r *query.Reader, c proxy.Class) (all omap.Map[effect, omap.Unit]) {
	k, ok := a.key(r, c)
	if !ok {
		return all
	}
	list, _ := a.outcomes.Get(r, k)
	for _, o := range list {
		o.each(func(e effect, _ omap.Name) {
			if o.resource != nil && a.taken(r, c, omap.Name(o.resource.Name())) {
				e.failure = nameTaken
			}
			all = omap.With(all, omap.Put(e, omap.Unit{}))
		})
	}
	return all
}

// addedBy are the resources that patches add, with what became of each patch.
func addedBy(t resource.Type, patches []*patch.Patch) (list []*outcome) {
	var found []*resource.Resource
	var outcomes []patch.Outcome
	switch t {
	case resource.Cluster:
		clusters, all := patch.AddedClusters(patches)
		for _, m := range clusters {
			found = append(found, resource.New(t, m.GetName(), m))
		}
		outcomes = all
	case resource.Listener:
		listeners, all := patch.AddedListeners(patches)
		for _, m := range listeners {
			found = append(found, resource.New(t, m.GetName(), m))
		}
		outcomes = all
	}
	for i, o := range outcomes {
		of := &outcome{name: o.Patch.Field() + o.Patch.Filter.String(), patches: outcomes[i : i+1]}
		if o.Failure == "" { // the resources are in the order of the patches that add them
			of.resource, found = found[0], found[1:]
		}
		list = append(list, of)
	}
	return list
}
