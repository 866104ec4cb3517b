package state

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// AnyHost is the host of servers and routes for all hosts.
const AnyHost = "*"

// PathMatch tells how the path of a route is compared with that of a request.
type PathMatch uint8

// The ways to compare paths.
const (
	// AnyPath matches all requests.
	AnyPath PathMatch = iota
	// ExactPath matches the same path.
	ExactPath
	// PathSegments matches a path that begins with the same segments: /a matches /a and /a/b, and not /ab.
	PathSegments
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

// Admission is what decides whether an object counts.
type Admission struct {
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
	Servers   []GatewayServer
}

// GatewayServer is a port of gateways.
type GatewayServer struct {
	Port uint32
	// Field is where the object says so; empty for a server that follows from the kind of the object.
	Field string
	// Hosts are the hosts that it serves, or AnyHost.
	Hosts []string
	// TLS is true if the server takes TLS, and Credential names the Secret with its certificate. The API calls the mode SIMPLE.
	TLS        bool
	Credential string
}

// GatewayRoutes are the routes of one object.
type GatewayRoutes struct {
	Created   int64
	Admission Admission
	Routes    []GatewayRoute
}

// GatewayRoute leads requests for a path of a host to a backend.
type GatewayRoute struct {
	Host  string
	Match PathMatch
	Path  string
	// Field is where the object has the route.
	Field   string
	Backend GatewayBackend
}

// GatewayBackend is a port of a service, by its number or its name. Host is empty if the object names something else than a service.
type GatewayBackend struct {
	Host     string
	Port     uint32
	PortName string
}

// Of returns the routes for a host, in the order of the object.
func (g *GatewayRoutes) Of(host string) (list []GatewayRoute) {
	for _, route := range g.Routes {
		if route.Host == host {
			list = append(list, route)
		}
	}
	return list
}

func (s GatewayServer) equal(o GatewayServer) bool {
	return s.Port == o.Port && s.Field == o.Field && s.TLS == o.TLS && s.Credential == o.Credential && slices.Equal(s.Hosts, o.Hosts)
}

func (g *GatewayServers) equal(o *GatewayServers) bool {
	return g.Created == o.Created && g.Admission == o.Admission && slices.EqualFunc(g.Servers, o.Servers, GatewayServer.equal)
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
