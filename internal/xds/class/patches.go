package class

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/class/patching"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// patchedLayer is the twin of a layer as a layer of a stack.
func patchedLayer(t *patching.Twin, name string, shared Sharing, key func(r *query.Reader, c proxy.Class) (any, bool)) stackLayer {
	l := stackLayer{
		name: "patched, " + name, sharedBy: shared, contexts: t.Contexts,
		layer: func(r *query.Reader, c proxy.Class) (Map, bool) {
			k, ok := t.Key(r, c, key)
			if !ok {
				return Map{}, false
			}
			return t.Resources(r, k), true
		},
		cell: func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
			k, ok := t.Key(r, c, key)
			if !ok {
				return 0, false
			}
			return t.Cell(k, name)
		},
		effects: func(r *query.Reader, c proxy.Class) (all omap.Map[patching.Effect, omap.Unit]) {
			if k, ok := t.Key(r, c, key); ok {
				all = t.Effects(r, k)
			}
			return all
		},
		difference: func(r *query.Reader, c proxy.Class, filter api.Key) (list []patching.Difference) {
			if k, ok := t.Key(r, c, key); ok {
				list = t.Differences(r, k, filter)
			}
			return list
		},
	}
	if t.Type == resource.Route {
		l.host = func(r *query.Reader, c proxy.Class, name, piece omap.Name) (query.ID, bool) {
			k, ok := t.Key(r, c, key)
			if !ok {
				return 0, false
			}
			return t.HostCell(r, k, name, piece)
		}
	}
	return l
}

// addedLayer is the layer of the resources of a type that patches add. One whose name another layer has is left out,
// unless a patch removes the other one.
func (q *Queries) addedLayer(g *query.Graph, t resource.Type, others stack) stackLayer {
	a := patching.DefineAdded(g, q.patches, t, others.has)
	return stackLayer{
		name: "added by patches", sharedBy: SharedByScope, contexts: outboundContexts(),
		layer: a.Resources, cell: a.Cell, effects: a.Effects, difference: a.Differences,
	}
}

// has reports whether a class has a resource of a name.
func (s stack) has(r *query.Reader, c proxy.Class, name omap.Name) bool {
	for _, l := range s {
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

// bootstrapStack is the stack of what patches add to the bootstrap. A class to which no such patch applies has no layer.
func (q *Queries) bootstrapStack(g *query.Graph) stack {
	b := patching.DefineBootstrap(g, q.patches)
	return stack{{
		name: "patches", sharedBy: SharedByScope, contexts: outboundContexts(),
		layer: b.Resources, cell: b.Cell, effects: b.Effects, difference: b.Differences,
	}}
}

// PatchedClasses returns classes of connected proxies to which an EnvoyFilter applies, some if there are many.
func (q *Queries) PatchedClasses(r *query.Reader, k api.Key) []proxy.Class {
	return q.filterProblems.ClassesOf(r, k)
}

// Patches returns the patches of an EnvoyFilter, in their order.
func (q *Queries) Patches(r *query.Reader, k api.Key) []*patch.Patch {
	return q.patches.Of(r, k)
}

// PatchEffects returns what the patches of an EnvoyFilter do to the resources of a class, whether or not a proxy of the class is connected.
// It evaluates all that the patches may be about, so it is for questions of users.
func (q *Queries) PatchEffects(r *query.Reader, c proxy.Class, k api.Key) (list []patching.Difference) {
	for _, s := range q.stacks {
		for _, l := range s {
			if l.difference != nil {
				list = append(list, l.difference(r, c, k)...)
			}
		}
	}
	return list
}

// effectsOn are the effects of patches in all layers of a class.
func (q *Queries) effectsOn(r *query.Reader, c proxy.Class) (all omap.Map[patching.Effect, omap.Unit]) {
	var changes []omap.Change[patching.Effect, omap.Unit]
	for _, s := range q.stacks {
		for _, l := range s {
			if l.effects == nil {
				continue
			}
			for e := range l.effects(r, c).All() {
				changes = append(changes, omap.Put(e, omap.Unit{}))
			}
		}
	}
	return omap.With(all, changes...)
}

// extensionProvider answers requests of proxies for the configuration of extensions: of WasmPlugins and TrafficExtensions, and what patches of
// EXTENSION_CONFIG add.
func (q *Queries) extensionProvider() Provider {
	return Provider{Type: resource.Extension, Find: func(r *query.Reader, p *proxy.Proxy, name, _ string) Answer {
		c := q.Scope.ClassOf(r, p)
		if a, ok := q.added.Find(r, c, name, !p.Identity.IsZero()); ok {
			return a
		}
		found, ok := q.patches.Extension(r, c, name)
		if !ok {
			return Answer{Reason: "no patch of EXTENSION_CONFIG that applies to the proxy adds it"}
		}
		return Answer{Resource: resource.New(resource.Extension, name, found)}
	}}
}
