// Package gateway answers what gateways are to serve: which objects count, and for each host the servers, and the routes in order.
//
// It owns the rules for Ingresses. Whether one counts follows from its annotation, its class, and the mesh settings. The routes of a
// host come from all objects that count: longer paths first, exact ones first among paths of the same length, then by age, namespace
// and name. Of routes for the same path only the first one is used, and of certificates for the same host the one of the oldest object.
//
// There is one cell per host, and below it one for the part of each object for the host. So a change of a path runs
// small cells of the hosts of its object, and the cell of that host only.
//
// It also owns which servers of Gateways and Ingresses are used (plan.go): the oldest object goes first, and one that cannot share a port
// with it is left out; and which VirtualServices and Ingresses serve which host (binding.go). Such an object has one cell for each route
// configuration to which it may contribute, which decides for which hosts; so a change of it runs the cells of its hosts, and a change of
// a server runs only the hosts that it adds or removes. All Ingresses share one server without TLS, so that one more Ingress without a
// certificate changes no server. The package starts no goroutines.
package gateway

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Standing is whether an Ingress counts, or why not.
type Standing uint8

// The standings.
const (
	Counts Standing = iota
	// Off: Ingresses are switched off.
	Off
	// Foreign: it belongs to another controller.
	Foreign
	// Unclaimed: it names no class, and such Ingresses do not count.
	Unclaimed
	// ClassMissing: its class does not exist, and such Ingresses do not count.
	ClassMissing
)

// Queries answer questions about gateways.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	// standing is shared by all objects with the same class.
	standing query.Query[gatewayrows.Admission, Standing]
	// certificates are the servers with TLS for a host or pattern.
	certificates query.Query[string, []Server]
	// parts are the routes and servers of one object for one host.
	parts query.Query[part, []Rule]
	// hosts are the hosts that some object serves.
	hosts query.Query[string, *Host]
	// oldest is the oldest Ingress that counts.
	oldest query.Query[struct{}, selected.AgeKey]
	// secured are the servers with a certificate of the Ingresses that count.
	secured query.Collection[struct{}, secured]
	// plainLoss is why no Ingress is served without TLS.
	plainLoss query.Query[struct{}, Loss]
	// addresses are where clients reach the gateways that serve Ingresses.
	addresses query.Query[struct{}, intern.List[string]]

	// plan is the listeners of gateways; the others are parts of it: a listener, the servers of a route configuration, and names.
	plan     query.Query[Served, *plan]
	listener query.Query[listenerKey, *Listener]
	names    query.Query[Served, names]
	// declaredBy are the servers of the Gateways with some selectors. The servers of one Gateway are in its order.
	declaredBy query.Collection[intern.List[proxy.GatewaySelector], declared]
	// servers are the servers of a route configuration.
	servers query.Layers[tableKey, api.Key, placedList]
	// http3 is the port of a route configuration for HTTP/3.
	http3 query.Query[tableKey, uint32]
	// shared are the hosts of a route configuration with certificates on demand, and onDemand all hosts with such certificates.
	shared   query.Layers[sharedKey, omap.Name, sharedServer]
	onDemand query.Layers[Served, omap.Name, sharedServer]
	// objects groups the objects that may have routes in a table by the owners of its servers.
	objects query.Groups[Table, api.Key, api.Key]
	// uses groups the VirtualServices of a table by host.
	uses query.Groups[Table, omap.Name, Use]
	// routed are the hosts of the services that gateways call.
	routed query.Query[Routing, scope.Hosts]
}

// part is an object and one of its hosts.
type part struct {
	object api.Key
	host   string
}

// Host is what Ingresses say about a host or pattern, or about all hosts if Name is gateway.AnyHost.
type Host struct {
	Name  string
	Rules []Rule
}

// Server is a port at which a host is served.
type Server struct {
	gateway.Server
	Object api.Key
	// Host is the host or pattern for which the object has the server: it covers the host that is served.
	Host string
	// Winner is the object whose certificate is used instead; zero if this one is.
	Winner api.Key
}

// Rule is a route of a host.
type Rule struct {
	gateway.Route
	Object api.Key
	// Target is the host of the service to which requests go. It differs from the backend's host if that is another name for the service.
	Target string
	// Port is the port of the backend; zero if it is not known.
	Port uint32
	// Trouble is why requests fail, and TroubleField the field at fault; empty if nothing is wrong.
	Trouble, TroubleField string
	// Winner is the object whose route for the same path is used instead; zero if this one is.
	Winner api.Key
}

// LeftOut reports whether gateways do not have the route, because its backend has no port.
func (r Rule) LeftOut() bool { return r.Port == 0 }

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc}
	same := func(a, b Standing) bool { return a == b }
	q.standing = query.Define(g, "ingressStanding", same, func(r *query.Reader, a gatewayrows.Admission) (Standing, bool) {
		return q.judge(r, a), true
	})
	q.certificates = query.Define(g, "gatewayCertificates", equalServers, q.certificate)
	q.parts = query.Define(g, "gatewayParts", slices.Equal[[]Rule], q.part)
	q.hosts = query.Define(g, "gatewayHost", (*Host).equal, q.host)
	q.addresses = query.Define(g, "ingressAddresses", func(a, b intern.List[string]) bool { return a == b }, q.addressesOf)
	q.defineIngresses(g)
	q.definePlans(g)
	q.defineShared(g)
	q.defineBindings(g)
	q.defineRouted(g)
	return q
}

func equalServers(a, b []Server) bool {
	return slices.EqualFunc(a, b, func(a, b Server) bool {
		return a.Object == b.Object && a.Host == b.Host && a.Winner == b.Winner && a.Server.Equal(b.Server)
	})
}

func (h *Host) equal(o *Host) bool { return slices.Equal(h.Rules, o.Rules) }

// Standing returns whether an object counts.
func (q *Queries) Standing(r *query.Reader, a gatewayrows.Admission) Standing {
	s, _ := q.standing.Get(r, a)
	return s
}

// Host returns the routes for a host or pattern that some object names; false if it has none.
func (q *Queries) Host(r *query.Reader, name string) (*Host, bool) { return q.hosts.Get(r, name) }

// Certificates returns the servers with TLS that objects have for exactly this host or pattern, the server of the oldest object first.
func (q *Queries) Certificates(r *query.Reader, host string) []Server {
	list, _ := q.certificates.Get(r, host)
	return list
}
