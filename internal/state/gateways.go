package state

import (
	"slices"

	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/pilotmesh/pilot/internal/api"
	ingressapi "github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/gateways"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Gateways are the rows that gateways are made of. Each kind of object that configures gateways is split into these rows. Whether an
// object counts is decided by queries (view/gateway), because it depends on settings and on other objects.
type Gateways struct {
	// Servers are what gateways listen for.
	Servers store.Table[api.Key, *GatewayServers]
	// Routes are the routes for requests that gateways receive.
	Routes store.Table[api.Key, *GatewayRoutes]
	// Classes are the controllers of IngressClasses.
	Classes store.Table[api.Key, string]
	// ServersFor and RoutesFor list the objects that have a server with TLS or a route for a host, the oldest first.
	ServersFor, RoutesFor store.Index[string, AgeKey]
	// Hosts lists, under the empty key, the hosts for which there are routes.
	Hosts store.Index[struct{}, omap.Name]
}

// Admission is what decides whether an object counts. It is zero for an object of a kind that always counts.
type Admission struct {
	// ByClass is true for an Ingress, which counts if it is of the class of the mesh. Its gateways are those of the mesh settings.
	ByClass bool
	// Annotated is true if the object has the annotation kubernetes.io/ingress.class, and Annotation is its value.
	Annotated  bool
	Annotation string
	// Class is the name of its IngressClass; empty without one.
	Class string
}

// GatewayServers are the servers of one object.
type GatewayServers struct {
	Created   int64
	Admission Admission
	Servers   []gateways.Server
	// Ignored is the field of a default backend that has no effect because there are rules; empty if there is none.
	Ignored string
}

// GatewayRoutes are the routes of one object.
type GatewayRoutes struct {
	Created   int64
	Admission Admission
	Routes    []gateways.Route
}

func (t *Tables) splitIngressClass(tx *store.Txn, o *api.Object, m *dynamicpb.Message) {
	t.Gateways.Classes.Set(tx, o.Key, ingressapi.ClassOf(m).Controller)
}

func (t *Tables) splitIngress(tx *store.Txn, o *api.Object, m *dynamicpb.Message) {
	s := ingressapi.SpecOf(m)
	a := Admission{ByClass: true, Class: s.IngressClassName}
	a.Annotation, a.Annotated = o.Annotations[ingressapi.ClassAnnotation]
	servers := &GatewayServers{Created: age(o), Admission: a, Servers: gateways.IngressServers(s)}
	if s.DefaultBackend != nil && len(s.Rules) > 0 {
		servers.Ignored = "spec.defaultBackend"
	}
	t.Gateways.Servers.Set(tx, o.Key, servers)
	t.Gateways.Routes.Set(tx, o.Key, &GatewayRoutes{age(o), a, gateways.IngressRoutes(s, o.Namespace, t.options.Domain)})
}

// Of returns the routes for a host, in the order of the object.
func (g *GatewayRoutes) Of(host string) (list []gateways.Route) {
	for _, route := range g.Routes {
		if route.Host == host {
			list = append(list, route)
		}
	}
	return list
}

func (g *GatewayServers) equal(o *GatewayServers) bool {
	return g.Created == o.Created && g.Admission == o.Admission && g.Ignored == o.Ignored && slices.EqualFunc(g.Servers, o.Servers, gateways.Server.Equal)
}

func (g *GatewayRoutes) equal(o *GatewayRoutes) bool {
	return g.Created == o.Created && g.Admission == o.Admission && slices.Equal(g.Routes, o.Routes)
}

func (t *Tables) defineGateways(db *store.DB) {
	g := &t.Gateways
	g.Servers = store.NewTable[api.Key, *GatewayServers](db, "gatewayServers", (*GatewayServers).equal)
	g.Routes = store.NewTable[api.Key, *GatewayRoutes](db, "gatewayRoutes", (*GatewayRoutes).equal)
	g.Classes = store.NewTable[api.Key, string](db, "ingressClasses", same[string])
	g.ServersFor = store.NewIndex(g.Servers, "gatewayServersFor", func(k api.Key, s *GatewayServers, add func(string, AgeKey)) {
		for _, server := range s.Servers {
			if !server.TLS {
				continue // each Ingress has it, for all hosts
			}
			for _, host := range server.Hosts {
				add(host, AgeKey{s.Created, k})
			}
		}
	})
	g.RoutesFor = store.NewIndex(g.Routes, "gatewayRoutesFor", func(k api.Key, s *GatewayRoutes, add func(string, AgeKey)) {
		for _, route := range s.Routes {
			add(route.Host, AgeKey{s.Created, k})
		}
	})
	g.Hosts = store.NewIndex(g.Routes, "gatewayHosts", func(_ api.Key, s *GatewayRoutes, add func(struct{}, omap.Name)) {
		for _, route := range s.Routes {
			add(struct{}{}, omap.Name(route.Host))
		}
	})
}
