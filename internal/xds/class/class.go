// Package class assembles what the proxies of a class are sent.
//
// It owns the order of layers in a class state, and the order in which all queries are defined: a query may read only
// queries that were defined before it. A class state holds pointers to shared collections; nothing is made for one class
// alone. The package also turns rejections, withheld acknowledgements, unanswered requests and faults into problems. It
// starts no goroutines. Package patching has the queries for the layers that EnvoyFilters change.
package class

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/allocation"
	"github.com/pilotmesh/pilot/internal/view/capture"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/problem"
	"github.com/pilotmesh/pilot/internal/view/registration"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/view/transport"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/class/patching"
	"github.com/pilotmesh/pilot/internal/xds/cluster"
	"github.com/pilotmesh/pilot/internal/xds/endpoint"
	"github.com/pilotmesh/pilot/internal/xds/extension"
	"github.com/pilotmesh/pilot/internal/xds/listener"
	"github.com/pilotmesh/pilot/internal/xds/mcp"
	"github.com/pilotmesh/pilot/internal/xds/nametable"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
	"github.com/pilotmesh/pilot/internal/xds/telemetry"
)

// All is the key of what exists once, such as the problems and the base view.
type All = service.All

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// Queries are all queries of the control plane.
type Queries struct {
	// Class is the class of a connected proxy by node id. It is absent if no such proxy is connected.
	Class query.Query[string, proxy.Class]
	// State is what the proxies of a class are to have. Its revision is not set, because only the loop knows it.
	State query.Query[proxy.Class, *resource.State]
	// Problems are the problems shown to users, whether or not a proxy sees the objects concerned.
	Problems query.Layers[All, omap.Name, api.Problem]

	// Versions are the versions of the objects that clusters have.
	Versions query.Layers[All, omap.Name, Version]

	// Addresses are the changes of the addresses that are allocated to ServiceEntries.
	Addresses query.Layers[allocation.All, omap.Name, allocation.Change]

	// Captured are the nodes that are ready for the pods of the mesh, by the namespace of the agents of a CNI plugin.
	Captured query.Collection[string, capture.Node]

	// Registrations are the facts about WorkloadEntries that are made for proxies.
	Registrations query.Layers[registration.All, omap.Name, registration.Facts]

	// Answers are what connected proxies get for the names that they request of types without a class state.
	Answers query.Query[connected.WantKey, Answer]

	// Configuration are the objects that other control planes read.
	Configuration *mcp.Queries

	// Services, Rules and Scope are the views that translation depends on.
	Services *service.Queries
	Rules    *traffic.Queries
	Scope    *scope.Queries

	// Gateways are the queries for what gateways serve.
	Gateways *gateway.Queries

	tables    *state.Tables
	policies  *authz.Queries
	telemetry *telemetry.Queries
	added     *extension.Queries
	clusters  *cluster.Queries
	endpoints *endpoint.Queries
	listeners *listener.Queries
	routes    *route.Queries
	names     *nametable.Queries
	patches   *patching.Queries
	demand    demand
	// filterProblems are the problems of EnvoyFilters.
	filterProblems *patching.Problems
	stacks         [resource.Types]stack
	rejected       rejected
	missing        query.Collection[All, api.Problem]
	// unregistered are the problems of proxies that cannot be registered.
	unregistered query.Collection[registration.All, api.Problem]
}

// Define adds all queries to a graph over the tables' store. providers answer the types that are answered per proxy.
func Define(g *query.Graph, t *state.Tables, providers ...Provider) *Queries {
	services := service.Define(g, t)
	rules := traffic.Define(g, t, services)
	scopes := scope.Define(g, t, services, rules)
	served := gateway.Define(g, t, services, rules, scopes)
	connections := transport.Define(g, t, services, rules, scopes, served)
	policies, observed, added := authz.Define(g, t, scopes), telemetry.Define(g, t, scopes), extension.Define(g, t, pullSecretsOf(providers))
	q := &Queries{
		Gateways:  served,
		policies:  policies,
		telemetry: observed,
		added:     added,
		Services:  services,
		Rules:     rules,
		Scope:     scopes,
		tables:    t,
		Class:     scopes.Class,
		clusters:  cluster.Define(g, t, services, rules, scopes, served),
		endpoints: endpoint.Define(g, t, services, rules, scopes),
		listeners: listener.Define(g, t, services, scopes, connections, policies, observed, added, served),
		routes:    route.Define(g, t, services, rules, scopes, served),
		names:     nametable.Define(g, t, services, scopes),
	}
	q.patches = patching.Define(g, t)
	q.defineStacks(g)
	q.defineDemand(g)
	q.State = query.Define(g, "state", equalStates, q.assemble)
	q.defineRejected(g)
	q.defineWants(g, append(slices.Clip(providers), q.extensionProvider()))
	q.defineVersions(g)
	q.Addresses = allocation.Define(g, t).Changes
	q.Captured = capture.Define(g, t).Captured
	q.Configuration = mcp.Define(g, t)
	registrations := registration.Define(g, t)
	q.Registrations, q.unregistered = registrations.Facts, registrations.Problems
	q.defineProblems(g, problem.Define(g, t, services, rules, scopes, connections, q.Gateways).All)
	return q
}

func equalStates(a, b *resource.State) bool {
	if a == b {
		return true
	}
	for t := range a.Types {
		if !slices.EqualFunc(a.Types[t], b.Types[t], Map.Equal) {
			return false
		}
	}
	return a.First.Equal(b.First)
}

// assemble puts together the layers of all types.
func (q *Queries) assemble(r *query.Reader, c proxy.Class) (*resource.State, bool) {
	s := &resource.State{}
	for t := range s.Types {
		s.Types[t] = q.stacks[t].layersOf(r, c)
	}
	if c.HostsOnDemand {
		s.First, _ = q.demand.first.Get(r, c)
	}
	return s, true
}
