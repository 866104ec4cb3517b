// Package gateway answers what gateways are to serve: which objects count, and for each host the servers, and the routes in order.
//
// It owns the rules for Ingresses. Whether one counts follows from its annotation, its class, and the mesh settings. The routes of a
// host come from all objects that count: longer paths first, exact ones first among paths of the same length, then by age, namespace
// and name. Of routes for the same path only the first one is used, and of certificates for the same host the one of the oldest object.
//
// There is one cell per host, and below it one for the part of each object for the host. So a change of a path runs
// small cells of the hosts of its object, and the cell of that host only. No gateway serves Ingresses yet.
//
// It also owns which servers of Gateways are used (plan.go): the oldest Gateway goes first, and one that cannot share a port with it is
// left out; and which VirtualServices serve which host (binding.go). A VirtualService has one cell for each route configuration to which
// it may contribute, which decides for which hosts; so a change of it runs the cells of its hosts, and a change of a server runs only the
// hosts that it adds or removes. The package starts no goroutines.
package gateway

import (
	"cmp"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
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
	standing query.Query[state.Admission, Standing]
	// certificates are the servers with TLS for a host or pattern.
	certificates query.Query[string, []Server]
	// parts are the routes and servers of one object for one host.
	parts query.Query[part, []Rule]
	// hosts are the hosts that some object serves.
	hosts query.Query[string, *Host]

	// plan is the listeners of gateways; the others are parts of it: a listener, the servers of a route configuration, and names.
	plan     query.Query[Served, *plan]
	listener query.Query[listenerKey, *Listener]
	table    query.Query[tableKey, []Placed]
	names    query.Query[Served, names]
	// uses groups the VirtualServices of a table by host.
	uses query.Groups[Table, omap.Name, Use]
}

// part is an object and one of its hosts.
type part struct {
	object api.Key
	host   string
}

// Host is what gateways serve for a host or pattern, or for all hosts if Name is gateway.AnyHost.
type Host struct {
	Name    string
	Servers []Server
	Rules   []Rule
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
	q.standing = query.Define(g, "ingressStanding", same, func(r *query.Reader, a state.Admission) (Standing, bool) {
		return q.judge(r, a), true
	})
	q.certificates = query.Define(g, "gatewayCertificates", equalServers, q.certificate)
	q.parts = query.Define(g, "gatewayParts", slices.Equal[[]Rule], q.part)
	q.hosts = query.Define(g, "gatewayHost", (*Host).equal, q.host)
	q.definePlans(g)
	q.defineBindings(g)
	return q
}

func equalServers(a, b []Server) bool {
	return slices.EqualFunc(a, b, func(a, b Server) bool {
		return a.Object == b.Object && a.Host == b.Host && a.Winner == b.Winner && a.Server.Equal(b.Server)
	})
}

func (h *Host) equal(o *Host) bool {
	return slices.Equal(h.Rules, o.Rules) && equalServers(h.Servers, o.Servers)
}

// Standing returns whether an object counts.
func (q *Queries) Standing(r *query.Reader, a state.Admission) Standing {
	s, _ := q.standing.Get(r, a)
	return s
}

// Host returns the routes and servers for a host or pattern that some object names; false if it has none.
func (q *Queries) Host(r *query.Reader, name string) (*Host, bool) { return q.hosts.Get(r, name) }

// Certificates returns the servers with TLS that objects have for exactly this host or pattern, the server of the oldest object first.
func (q *Queries) Certificates(r *query.Reader, host string) []Server {
	list, _ := q.certificates.Get(r, host)
	return list
}

// ClassKey returns the key of an IngressClass.
func ClassKey(name string) api.Key { return api.Key{Kind: ingress.ClassKind, Name: name} }

func (q *Queries) judge(r *query.Reader, a state.Admission) Standing {
	if !a.ByClass {
		return Counts
	}
	settings := q.tables.Ingress(r)
	if settings.Mode == gateway.IngressOff {
		return Off
	}
	if a.Annotated {
		if a.Annotation == settings.Class {
			return Counts
		}
		return Foreign
	}
	missing := false
	if a.Class != "" {
		controller, ok := q.tables.Gateways.Classes.Get(r, ClassKey(a.Class))
		switch {
		case ok && controller == ingress.Controller:
			return Counts
		case ok:
			return Foreign
		}
		missing = true
	}
	switch {
	case settings.Mode == gateway.IngressDefault:
		return Counts
	case missing:
		return ClassMissing
	}
	return Unclaimed
}

// part returns the routes and servers of an object for a host, in the order of the object.
func (q *Queries) part(r *query.Reader, p part) ([]Rule, bool) {
	row, ok := q.tables.Gateways.Routes.Get(r, p.object)
	if !ok || q.Standing(r, row.Admission) != Counts {
		return nil, false
	}
	var list []Rule
	for _, route := range row.Of(p.host) {
		rule := Rule{Route: route, Object: p.object}
		q.resolve(r, &rule)
		list = append(list, rule)
	}
	return list, len(list) > 0
}

func (q *Queries) host(r *query.Reader, name string) (*Host, bool) {
	h := &Host{Name: name}
	for k := range q.tables.Gateways.RoutesFor.Group(r, name).All() {
		rules, _ := q.parts.Get(r, part{k.Key, name})
		h.Rules = append(h.Rules, rules...)
	}
	if len(h.Rules) == 0 {
		return nil, false
	}
	slices.SortStableFunc(h.Rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(length(b), length(a)), cmp.Compare(rank(a.Match), rank(b.Match)))
	})
	type path struct {
		match gateway.PathMatch
		path  string
	}
	first := map[path]api.Key{}
	for i := range h.Rules {
		rule := &h.Rules[i]
		at := path{rule.Match, rule.Path}
		if winner, taken := first[at]; taken {
			rule.Winner = winner
		} else if !rule.LeftOut() {
			first[at] = rule.Object
		}
	}
	h.Servers = q.servers(r, name, h.Rules)
	return h, true
}

// length is the length of the path of a rule. Matching all requests is as long as the path /, and comes after it.
func length(r Rule) int { return max(1, len(r.Path)) }

func rank(m gateway.PathMatch) int {
	if m == gateway.ExactPath {
		return 0
	}
	return 1
}

// servers returns the servers of a host: the plain servers of the objects that have rules for it, each port once, and
// the TLS servers for the narrowest pattern that covers it.
func (q *Queries) servers(r *query.Reader, host string, rules []Rule) []Server {
	var list []Server
	for _, rule := range rules {
		row, ok := q.tables.Gateways.Servers.Get(r, rule.Object)
		if !ok {
			continue
		}
		for _, s := range row.Servers {
			if !s.Secure() && !slices.ContainsFunc(list, func(o Server) bool { return o.Port == s.Port }) {
				list = append(list, Server{Server: s, Host: host, Object: rule.Object})
			}
		}
	}
	for name := range mesh.NarrowestFirst(host) {
		if secure := q.Certificates(r, name); len(secure) > 0 {
			return append(list, secure...)
		}
	}
	return list
}

func (q *Queries) certificate(r *query.Reader, host string) ([]Server, bool) {
	var list []Server
	for k := range q.tables.Gateways.ServersFor.Group(r, host).All() {
		row, ok := q.tables.Gateways.Servers.Get(r, k.Key)
		if !ok || q.Standing(r, row.Admission) != Counts {
			continue
		}
		for _, s := range row.Servers {
			if !s.Secure() || s.Credential() == "" || !s.Serves(host) {
				continue
			}
			server := Server{Server: s, Host: host, Object: k.Key}
			if len(list) > 0 && list[0].Credential() != s.Credential() {
				server.Winner = list[0].Object // Secrets of one name are the same: they are in the namespace of the gateway
			}
			list = append(list, server)
		}
	}
	return list, len(list) > 0
}
