package patching

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

// Added are the queries for the resources of a type that patches add. One whose name another layer has is left out, unless a patch removes the
// other one.
type Added struct {
	patches  *Queries
	of       Layer
	outcomes query.Query[addedKey, []*outcome]
	all      query.Query[addedKey, resources]
	// taken reports whether another layer of a class has a resource of a name.
	taken func(r *query.Reader, c proxy.Class, name omap.Name) bool
}

// DefineAdded defines the queries for the resources of a type that patches add. taken reports whether another layer of a class has a resource of a
// name.
func DefineAdded(g *query.Graph, p *Queries, t resource.Type, taken func(r *query.Reader, c proxy.Class, name omap.Name) bool) *Added {
	a := &Added{patches: p, taken: taken}
	a.of = Layer{Type: t, Contexts: ContextsOf(networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND)}
	a.outcomes = query.Define(g, "added "+t.Kind()+".outcomes", layer.Equal[*outcome], func(r *query.Reader, k addedKey) ([]*outcome, bool) {
		list := addedBy(t, p.list(r, k.patches))
		return list, len(list) > 0
	})
	a.all = query.Define(g, "added "+t.Kind(), resources.Equal, func(r *query.Reader, k addedKey) (resources, bool) {
		list, _ := a.outcomes.Get(r, k)
		var changes []omap.Change[omap.Name, *resource.Resource]
		for _, o := range list {
			if o.resource != nil {
				changes = append(changes, omap.Put(omap.Name(o.resource.Name()), o.resource))
			}
		}
		return omap.With(resources{}, changes...), true
	})
	return a
}

// key are the patches that add resources for a class.
func (a *Added) key(r *query.Reader, c proxy.Class) (addedKey, bool) {
	s := a.of.subjectFor(c)
	s.adds = true
	set := a.patches.of(r, c, s)
	return addedKey{a.of.Type, set}, !set.Empty()
}

// Resources are the added resources of a class.
func (a *Added) Resources(r *query.Reader, c proxy.Class) (resources, bool) {
	k, ok := a.key(r, c)
	if !ok {
		return resources{}, false
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

// Cell returns the cell that yields an added resource of a class.
func (a *Added) Cell(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
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

// Effects are the effects of the patches.
func (a *Added) Effects(r *query.Reader, c proxy.Class) (all omap.Map[Effect, omap.Unit]) {
	k, ok := a.key(r, c)
	if !ok {
		return all
	}
	list, _ := a.outcomes.Get(r, k)
	for _, o := range list {
		o.each(func(e Effect, _ omap.Name) {
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
