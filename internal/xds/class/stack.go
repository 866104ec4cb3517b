package class

import (
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/cluster"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/listener"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Layer says who shares a resource.
type Layer uint8

// The layers, the narrowest first.
const (
	// Workload: proxies of workloads that serve the same.
	Workload Layer = iota
	// Client: proxies that run in one place, or that the same rules select.
	Client
	// Scoped: the proxies of a namespace, or of a Sidecar.
	Scoped
	// Base: all proxies without a scope of their own.
	Base
	// Fixed: every proxy, whatever the configuration.
	Fixed
)

// stack is what the state of a class holds of one type: its layers, the one that wins first. Assembly, traces and the blame
// of a rejection all go by it.
type stack []part

// part is one layer of a stack.
type part struct {
	name   string
	shared Layer
	// of is the layer for the proxies of a class; false if they have none.
	of func(r *query.Reader, c proxy.Class) (Map, bool)
	// cell is the cell that yields a resource of the layer for the proxies of a class; false if the layer does not have it.
	cell func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool)
}

// keyOf is the key of a class's layer among the results of a query; false if the class has no such layer.
type keyOf[K comparable] func(r *query.Reader, c proxy.Class) (K, bool)

// always makes a key that every class has.
func always[K comparable](key func(c proxy.Class) K) keyOf[K] {
	return func(_ *query.Reader, c proxy.Class) (K, bool) { return key(c), true }
}

// fromCell is a layer that one cell yields as a whole.
func fromCell[K comparable](name string, shared Layer, q *query.Query[K, Map], key keyOf[K]) part {
	get := func(r *query.Reader, c proxy.Class) (k K, m Map, ok bool) {
		if k, ok = key(r, c); ok {
			m, _ = q.Get(r, k)
		}
		return k, m, ok
	}
	return part{
		name: name, shared: shared,
		of: func(r *query.Reader, c proxy.Class) (Map, bool) {
			_, m, ok := get(r, c)
			return m, ok
		},
		cell: func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
			k, m, ok := get(r, c)
			if !ok || !m.Has(name) {
				return 0, false
			}
			return q.Cell(k)
		},
	}
}

// fromElements is a layer with a cell for each of its elements.
func fromElements[K comparable](name string, shared Layer, q *query.Collection[K, *resource.Resource], key keyOf[K]) part {
	return part{
		name: name, shared: shared,
		of: func(r *query.Reader, c proxy.Class) (Map, bool) {
			k, ok := key(r, c)
			if !ok {
				return Map{}, false
			}
			return q.Get(r, k), true
		},
		cell: func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
			k, ok := key(r, c)
			if !ok {
				return 0, false
			}
			return q.Element(k, name)
		},
	}
}

// defineStacks declares the layers of every type, once for all that go by them.
func (q *Queries) defineStacks() {
	q.stacks[resource.Cluster] = append(stack{
		fromCell("inbound", Workload, q.clusters.Inbound, always(func(c proxy.Class) cluster.Inbound {
			return cluster.Inbound{Ports: c.Inbound, Direct: c.Mode == proxy.None}
		})),
		fromCell("fixed", Fixed, q.clusters.Fixed, always(all)),
	}, hostStack(q.clusters.Hosts)...)
	q.stacks[resource.Endpoint] = hostStack(q.endpoints.Hosts)
	q.stacks[resource.Listener] = q.listenerStack()
	q.stacks[resource.Route] = q.routeStack()
}

func all(proxy.Class) service.All { return service.All{} }

// base makes the key of a layer of what all see: only classes without a Sidecar have it.
func base[K comparable](key func(c proxy.Class) K) keyOf[K] {
	return func(_ *query.Reader, c proxy.Class) (K, bool) { return key(c), scope.SetOf(c).Overlay() }
}

// sidecars makes the key of a layer that gateways do not have.
func sidecars[K comparable](key keyOf[K]) keyOf[K] {
	return func(r *query.Reader, c proxy.Class) (k K, ok bool) {
		if c.Gateway {
			return k, false
		}
		return key(r, c)
	}
}

// hostStack is the stack of what is made host by host: what some clients see differently goes before what others of their
// scope see.
func hostStack(h *layer.Hosts[*resource.Resource]) stack {
	plain := func(c proxy.Class) scope.Set { return scope.SetOf(c).Plain() }
	return stack{
		fromElements("client in scope", Client, h.Own.Scoped, func(_ *query.Reader, c proxy.Class) (scope.Personal, bool) {
			client := scope.ClientOf(c)
			return scope.Personal{Set: plain(c), Client: client}, client != traffic.Client{}
		}),
		fromElements("scope", Scoped, h.Scoped, always(plain)),
		fromElements("site", Client, h.Own.Base, func(_ *query.Reader, c proxy.Class) (mesh.Site, bool) {
			return c.Site, plain(c).Overlay() && c.Site != (mesh.Site{})
		}),
		fromElements("base", Base, h.Base, base(all)),
	}
}

// listenerStack: a gateway has no listeners yet.
func (q *Queries) listenerStack() stack {
	return stack{
		fromCell("inbound", Workload, q.listeners.Inbound, sidecars(always(listener.InboundOf))),
		fromCell("virtual outbound", Fixed, q.listeners.Virtual, sidecars(func(r *query.Reader, c proxy.Class) (listener.Virtual, bool) {
			return listener.VirtualOf(c, q.Scope.Outbound(r, scope.SetOf(c))), true
		})),
		fromElements("labels in scope", Scoped, q.listeners.Labelled, sidecars(func(_ *query.Reader, c proxy.Class) (listener.For, bool) {
			k, ok := scope.LabelledOf(c)
			return listener.For{Labelled: k, Shape: listener.ShapeOf(c)}, ok
		})),
		fromCell("HTTP proxies", Scoped, q.listeners.Proxies, func(r *query.Reader, c proxy.Class) (listener.Proxies, bool) {
			return listener.Proxies{Sidecar: c.Sidecar, Shape: listener.ShapeOf(c)}, q.proxied(r, c)
		}),
		fromElements("scope", Scoped, q.listeners.Scoped, sidecars(always(func(c proxy.Class) listener.In {
			return listener.In{Set: scope.SetOf(c), Shape: listener.ShapeOf(c)}
		}))),
		fromElements("base", Base, q.listeners.Base, sidecars(base(listener.ShapeOf))),
	}
}

func (q *Queries) routeStack() stack {
	labelled := func(_ *query.Reader, c proxy.Class) (scope.Labelled, bool) { return scope.LabelledOf(c) }
	return stack{
		fromElements("labels in scope", Scoped, q.routes.Labelled, labelled),
		fromElements("labels in scope, sniffed", Scoped, q.routes.LabelledSniffed, labelled),
		fromElements("scope", Scoped, q.routes.Scoped, always(scope.SetOf)),
		fromElements("scope, sniffed", Scoped, q.routes.ScopedSniffed, always(scope.SetOf)),
		fromCell("HTTP proxies", Scoped, q.routes.Proxied, func(r *query.Reader, c proxy.Class) (scope.Labelled, bool) {
			k, _ := scope.LabelledOf(c)
			return k, q.proxied(r, c)
		}),
		fromElements("base", Base, q.routes.Base, base(all)),
		fromElements("base, sniffed", Base, q.routes.Sniffed, base(all)),
	}
}

// proxied reports whether the proxies of a class take requests for whichever host these name.
func (q *Queries) proxied(r *query.Reader, c proxy.Class) bool {
	return !c.Gateway && len(q.Scope.HTTPProxies(r, c.Sidecar)) > 0
}

// layers are the layers of a class.
func (s stack) layers(r *query.Reader, c proxy.Class) (list resource.Layers) {
	for _, p := range s {
		if m, ok := p.of(r, c); ok {
			list = append(list, m)
		}
	}
	return list
}

// cell finds the cell that yields a resource of a class, in the layer that shows it.
func (s stack) cell(r *query.Reader, c proxy.Class, name omap.Name) (id query.ID, from part, ok bool) {
	for _, p := range s {
		if id, ok = p.cell(r, c, name); ok {
			return id, p, true
		}
	}
	return 0, part{}, false
}
