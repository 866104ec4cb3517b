// Package class puts together what the proxies of a class are to have.
//
// It owns the order of layers in a class state, and the order in which all queries are defined:
// a query may read only what was defined before it. A class state holds pointers to shared collections, nothing is made
// for one class alone. The package starts no goroutines; it must not import the store, sources or the server.
package class

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/problem"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/view/transport"
	"github.com/pilotmesh/pilot/internal/xds/cluster"
	"github.com/pilotmesh/pilot/internal/xds/endpoint"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/listener"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// All is the key of what exists once: the problems, the base.
type All = service.All

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// Queries are all queries of the control plane.
type Queries struct {
	// Class is the class of a connected proxy, by node id; absent if no such proxy is connected.
	Class *query.Query[string, proxy.Class]
	// State is what the proxies of a class are to have. Its revision is not set: the loop knows it.
	State *query.Query[proxy.Class, *resource.State]
	// Problems are what users should be told, whether or not a proxy sees the objects concerned.
	Problems *query.Query[All, []state.Problems]

	// Services, Rules and Scope are what translation decides by.
	Services *service.Queries
	Rules    *traffic.Queries
	Scope    *scope.Queries

	tables    *state.Tables
	clusters  *cluster.Queries
	endpoints *endpoint.Queries
	listeners *listener.Queries
	routes    *route.Queries
}

// Define adds all queries to a graph over the tables' store.
func Define(g *query.Graph, t *state.Tables) *Queries {
	services := service.Define(g, t)
	rules := traffic.Define(g, t, services)
	scopes := scope.Define(g, t, services, rules)
	connections := transport.Define(g, t, services, rules, scopes)
	q := &Queries{
		Services:  services,
		Rules:     rules,
		Scope:     scopes,
		tables:    t,
		Class:     scopes.Class,
		clusters:  cluster.Define(g, t, services, rules, scopes),
		endpoints: endpoint.Define(g, services, rules, scopes),
		listeners: listener.Define(g, t, services, scopes, connections),
		routes:    route.Define(g, t, services, rules, scopes),
	}
	q.State = query.Define(g, "state", same, q.assemble)
	q.defineProblems(g, problem.Define(g, t, services, rules, scopes, connections).All)
	return q
}

func same(a, b *resource.State) bool {
	if a == b {
		return true
	}
	for t := range a.Types {
		if !slices.EqualFunc(a.Types[t], b.Types[t], Map.Equal) {
			return false
		}
	}
	return true
}

// assemble stacks the layers of a class, the most widely shared last.
func (q *Queries) assemble(r *query.Reader, c proxy.Class) (*resource.State, bool) {
	set, direct := scope.SetOf(c), c.Mode == proxy.None
	fixed, _ := q.clusters.Fixed.Get(r, service.All{})
	inboundClusters, _ := q.clusters.Inbound.Get(r, cluster.Inbound{Ports: c.Inbound, Direct: direct})
	inboundListeners, _ := q.listeners.Inbound.Get(r, listener.InboundOf(c))
	virtual, _ := q.listeners.Virtual.Get(r, listener.VirtualOf(c, q.Scope.Outbound(r, set)))
	s := &resource.State{Types: [resource.Types]resource.Layers{
		resource.Cluster:  append(resource.Layers{inboundClusters, fixed}, hostLayers(r, q.clusters.Hosts, c)...),
		resource.Endpoint: hostLayers(r, q.endpoints.Hosts, c),
		resource.Listener: {inboundListeners, virtual, q.listeners.Scoped.Get(r, listener.In{Set: set, Shape: listener.ShapeOf(c)})},
		resource.Route:    {q.routes.Scoped.Get(r, set), q.routes.ScopedSniffed.Get(r, set)},
	}}
	k, labelled := scope.LabelledOf(c)
	if !c.Gateway && len(q.Scope.HTTPProxies(r, c.Sidecar)) > 0 {
		proxies, _ := q.listeners.Proxies.Get(r, listener.Proxies{Sidecar: c.Sidecar, Shape: listener.ShapeOf(c)})
		routes, _ := q.routes.Proxied.Get(r, k)
		s.Types[resource.Listener] = slices.Insert(s.Types[resource.Listener], 2, proxies)
		s.Types[resource.Route] = append(s.Types[resource.Route], routes)
	}
	if labelled {
		s.Types[resource.Listener] = slices.Insert(s.Types[resource.Listener], 2, q.listeners.Labelled.Get(r, listener.For{Labelled: k, Shape: listener.ShapeOf(c)}))
		s.Types[resource.Route] = append(resource.Layers{q.routes.Labelled.Get(r, k), q.routes.LabelledSniffed.Get(r, k)}, s.Types[resource.Route]...)
	}
	if set.Overlay() {
		s.Types[resource.Listener] = append(s.Types[resource.Listener], q.listeners.Base.Get(r, listener.ShapeOf(c)))
		s.Types[resource.Route] = append(s.Types[resource.Route], q.routes.Base.Get(r, service.All{}), q.routes.Sniffed.Get(r, service.All{}))
	}
	if c.Gateway {
		s.Types[resource.Listener] = nil
	}
	return s, true
}

// hostLayers stacks what is made host by host: what is the client's own comes before what others of its scope see.
func hostLayers(r *query.Reader, h *layer.Hosts[*resource.Resource], c proxy.Class) (list resource.Layers) {
	set := scope.SetOf(c).Plain()
	if client := scope.ClientOf(c); client != (traffic.Client{}) {
		list = append(list, h.Own.Scoped.Get(r, scope.Personal{Set: set, Client: client}))
	}
	list = append(list, h.Scoped.Get(r, set))
	if !set.Overlay() {
		return list
	}
	if c.Site != (mesh.Site{}) {
		list = append(list, h.Own.Base.Get(r, c.Site))
	}
	return append(list, h.Base.Get(r, service.All{}))
}
