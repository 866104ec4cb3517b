package class

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
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

// Trace is where a resource of a class comes from.
type Trace struct {
	Layer Layer
	// Leaves are the rows and groups it was made of, in the order they were read.
	Leaves []*query.Reason
}

// Trace finds what a resource, or one virtual host of it, is made of for the proxies of a class; false if the graph has
// not computed it. It is for the owner of the graph, between commits.
func (q *Queries) Trace(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) (Trace, bool) {
	id, layer, ok := q.yields(g, c, t, name, piece)
	if !ok {
		return Trace{}, false
	}
	return Trace{layer, g.Explain(id).Leaves()}, true
}

// yields finds the cell that yields a resource, or one virtual host of it.
func (q *Queries) yields(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) (id query.ID, layer Layer, ok bool) {
	if piece == "" {
		return q.cell(g, c, t, omap.Name(name))
	}
	labelled, _ := scope.LabelledOf(c)
	id, ok = q.routes.Cell(labelled, name, piece)
	return id, Scoped, ok
}

// Origin lists the objects a resource, or one virtual host of it, is made of for the proxies of a class. It is for the
// owner of the graph, between commits.
func (q *Queries) Origin(g *query.Graph, c proxy.Class, t resource.Type, name, piece string) []api.Key {
	id, _, ok := q.yields(g, c, t, name, piece)
	if !ok {
		return nil
	}
	return Objects(g, id)
}

// Objects lists the objects that a cell was made of. It is for the owner of the graph, between commits.
func Objects(g *query.Graph, cell query.ID) []api.Key {
	var keys []api.Key
	for _, row := range g.Rows(cell) {
		if key, ok := row.(api.Key); ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, api.Key.Compare)
	return slices.Compact(keys)
}

// cell finds the element that yields a resource, in the layer that shows it.
func (q *Queries) cell(g *query.Graph, c proxy.Class, t resource.Type, name omap.Name) (id query.ID, layer Layer, ok bool) {
	if id, layer, ok = q.ownCell(g.Glance(), c, t, name); ok {
		return id, layer, true
	}
	set := scope.SetOf(c)
	labelled, _ := scope.LabelledOf(c)
	switch t {
	case resource.Cluster:
		return inHosts(q.clusters.Hosts, c, name)
	case resource.Endpoint:
		return inHosts(q.endpoints.Hosts, c, name)
	case resource.Listener:
		k := listener.For{Labelled: labelled, Shape: listener.ShapeOf(c)}
		if id, ok = q.listeners.Labelled.Element(k, name); ok {
			return id, Scoped, true
		}
		return inLayers(q.listeners.Scoped, listener.In{Set: set, Shape: listener.ShapeOf(c)}, q.listeners.Base, listener.ShapeOf(c), name)
	case resource.Route:
		if m, _ := q.routes.Proxied.Get(g.Glance(), labelled); m.Has(name) {
			id, ok = q.routes.Proxied.Cell(labelled)
			return id, Scoped, ok
		}
		if id, ok = q.routes.Labelled.Element(labelled, name); ok {
			return id, Scoped, true
		}
		if id, ok = q.routes.LabelledSniffed.Element(labelled, name); ok {
			return id, Scoped, true
		}
		if id, layer, ok = inLayers(q.routes.ScopedSniffed, set, q.routes.Sniffed, service.All{}, name); ok {
			return id, layer, true
		}
		return inLayers(q.routes.Scoped, set, q.routes.Base, service.All{}, name)
	}
	return 0, 0, false
}

// ownCell finds the cell of what does not come from hosts: the workload's own resources and those every proxy has.
func (q *Queries) ownCell(r *query.Reader, c proxy.Class, t resource.Type, name omap.Name) (id query.ID, layer Layer, ok bool) {
	switch t {
	case resource.Cluster:
		in := cluster.Inbound{Ports: c.Inbound, Direct: c.Mode == proxy.None}
		if m, _ := q.clusters.Inbound.Get(r, in); m.Has(name) {
			id, ok = q.clusters.Inbound.Cell(in)
			return id, Workload, ok
		}
		if m, _ := q.clusters.Fixed.Get(r, service.All{}); m.Has(name) {
			id, ok = q.clusters.Fixed.Cell(service.All{})
			return id, Fixed, ok
		}
	case resource.Listener:
		in := listener.InboundOf(c)
		if m, _ := q.listeners.Inbound.Get(r, in); m.Has(name) {
			id, ok = q.listeners.Inbound.Cell(in)
			return id, Workload, ok
		}
		proxies := listener.Proxies{Sidecar: c.Sidecar, Shape: listener.ShapeOf(c)}
		if m, _ := q.listeners.Proxies.Get(r, proxies); m.Has(name) {
			id, ok = q.listeners.Proxies.Cell(proxies)
			return id, Scoped, ok
		}
		virtual := listener.VirtualOf(c, q.Scope.Outbound(r, scope.SetOf(c)))
		if m, _ := q.listeners.Virtual.Get(r, virtual); m.Has(name) {
			id, ok = q.listeners.Virtual.Cell(virtual)
			return id, Fixed, ok
		}
	}
	return 0, 0, false
}

// inHosts finds the element in the order in which hostLayers stacks them.
func inHosts(h *layer.Hosts[*resource.Resource], c proxy.Class, name omap.Name) (id query.ID, layer Layer, ok bool) {
	set := scope.SetOf(c).Plain()
	if id, ok = h.Own.Scoped.Element(scope.Personal{Set: set, Client: scope.ClientOf(c)}, name); ok {
		return id, Client, true
	}
	if id, ok = h.Scoped.Element(set, name); ok || !set.Overlay() {
		return id, Scoped, ok
	}
	if id, ok = h.Own.Base.Element(c.Site, name); ok {
		return id, Client, true
	}
	id, ok = h.Base.Element(service.All{}, name)
	return id, Base, ok
}

func inLayers[A, B comparable](
	scoped *query.Collection[A, *resource.Resource], a A, base *query.Collection[B, *resource.Resource], b B, name omap.Name,
) (id query.ID, layer Layer, ok bool) {
	if id, ok = scoped.Element(a, name); ok {
		return id, Scoped, true
	}
	id, ok = base.Element(b, name)
	return id, Base, ok
}
