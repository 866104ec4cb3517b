// Package gateway answers what gateways are to serve: which objects count, and for each host the servers, and the routes in order.
//
// It owns the rules for Ingresses. Whether one counts follows from its annotation, its class, and the mesh configuration. The routes
// of a host are those of all Ingresses that count: longer paths first, exact ones first among paths of the same length, then by age,
// namespace and name. Of routes for the same path only the first one is used, and of certificates for the same host that of the oldest.
//
// There is one cell per host, and below it one for what each object says of the host. So a change of a path runs small cells of the
// hosts of its object, and the cell of that host only. No gateway reads these queries yet. The package starts no goroutines.
package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Standing tells whether an Ingress counts, or why not.
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
	scope    *scope.Queries
	// standing is shared by all objects with the same class.
	standing query.Query[state.Admission, Standing]
	// parts are what one object says of one host.
	parts query.Query[part, []Rule]
	// hosts are the hosts that some object serves.
	hosts query.Query[string, *Host]
}

// part is an object and one of its hosts.
type part struct {
	object api.Key
	host   string
}

// Host is what gateways serve for a host, or for all hosts if Name is state.AnyHost.
type Host struct {
	Name    string
	Servers []Server
	Rules   []Rule
}

// Server is a port at which a host is served.
type Server struct {
	state.GatewayServer
	Object api.Key
	// Winner is the object whose certificate is used instead; zero if this one is.
	Winner api.Key
}

// Rule is a route of a host.
type Rule struct {
	state.GatewayRoute
	Object api.Key
	// Port is the port of the backend; zero if it is not known.
	Port uint32
	// Trouble tells why requests fail, and TroubleField where; empty if nothing is wrong.
	Trouble, TroubleField string
	// Winner is the object whose route for the same path is used instead; zero if this one is.
	Winner api.Key
}

// LeftOut reports whether gateways do not have the route, because its backend has no port.
func (r Rule) LeftOut() bool { return r.Port == 0 }

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, scope: sc}
	same := func(a, b Standing) bool { return a == b }
	q.standing = query.Define(g, "ingressStanding", same, func(r *query.Reader, a state.Admission) (Standing, bool) {
		return q.judge(r, a), true
	})
	q.parts = query.Define(g, "gatewayParts", slices.Equal[[]Rule], q.part)
	q.hosts = query.Define(g, "gatewayHost", (*Host).equal, q.host)
	return q
}

func (h *Host) equal(o *Host) bool {
	return slices.Equal(h.Rules, o.Rules) && slices.EqualFunc(h.Servers, o.Servers, func(a, b Server) bool {
		return a.Object == b.Object && a.Winner == b.Winner && a.Port == b.Port && a.TLS == b.TLS && a.Credential == b.Credential && a.Field == b.Field
	})
}

// Standing tells whether an object counts.
func (q *Queries) Standing(r *query.Reader, a state.Admission) Standing {
	s, _ := q.standing.Get(r, a)
	return s
}

// Host returns what is served for a host; false if nothing is.
func (q *Queries) Host(r *query.Reader, name string) (*Host, bool) { return q.hosts.Get(r, name) }

// ClassKey returns the key of an IngressClass.
func ClassKey(name string) api.Key { return api.Key{Kind: api.KindIngressClass, Name: name} }

func (q *Queries) judge(r *query.Reader, a state.Admission) Standing {
	mode := q.tables.IngressMode(r)
	if mode == state.IngressOff {
		return Off
	}
	if a.Annotated {
		if a.Annotation == q.tables.IngressClass(r) {
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
	case mode == state.IngressDefault:
		return Counts
	case missing:
		return ClassMissing
	}
	return Unclaimed
}

// part returns what an object says of a host, in its own order.
func (q *Queries) part(r *query.Reader, p part) ([]Rule, bool) {
	row, ok := q.tables.Gateways.Routes.Get(r, p.object)
	if !ok || q.Standing(r, row.Admission) != Counts {
		return nil, false
	}
	var list []Rule
	for _, route := range row.Of(p.host) {
		rule := Rule{GatewayRoute: route, Object: p.object}
		q.resolve(r, &rule)
		list = append(list, rule)
	}
	return list, len(list) > 0
}

// resolve finds the port of the backend of a rule.
func (q *Queries) resolve(r *query.Reader, rule *Rule) {
	b, at := rule.Backend, rule.Field
	if at != "spec.defaultBackend" {
		at += ".backend"
	}
	if b.Host == "" {
		rule.TroubleField, rule.Trouble = at+".resource", "only services can be backends: the rule is ignored; name a service"
		return
	}
	rule.Port = b.Port
	view := service.HostView{Host: b.Host, Viewer: q.scope.Viewer(r, b.Host, rule.Object.Namespace)}
	s, ok := q.services.Service.Get(r, view)
	if !ok {
		rule.TroubleField, rule.Trouble = at+".service.name", fmt.Sprintf("there is no service %q: what is sent there fails", b.Host)
		return
	}
	if b.PortName == "" {
		if _, ok := s.Port(b.Port); !ok {
			rule.TroubleField, rule.Trouble = at+".service.port.number", fmt.Sprintf("the service %q has no port %d: what is sent there fails", b.Host, b.Port)
		}
		return
	}
	for _, port := range s.Ports {
		if port.Name == b.PortName {
			rule.Port = port.Number
			return
		}
	}
	rule.TroubleField, rule.Trouble = at+".service.port.name", fmt.Sprintf("the service %q has no port with the name %q: the rule is ignored", b.Host, b.PortName)
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
		match state.PathMatch
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
	h.Servers = q.servers(r, name, h.Rules[0].Object)
	return h, true
}

// length is the length of the path of a rule. Matching all requests is as long as the path /, and comes after it.
func length(r Rule) int { return max(1, len(r.Path)) }

func rank(m state.PathMatch) int {
	if m == state.ExactPath {
		return 0
	}
	return 1
}

// servers returns the servers of a host: that for HTTP, and those of the objects that have a certificate for it.
func (q *Queries) servers(r *query.Reader, host string, first api.Key) []Server {
	list := []Server{}
	if row, ok := q.tables.Gateways.Servers.Get(r, first); ok && len(row.Servers) > 0 {
		list = append(list, Server{GatewayServer: row.Servers[0], Object: first})
	}
	var winner *Server
	for k := range q.tables.Gateways.ServersFor.Group(r, host).All() {
		row, ok := q.tables.Gateways.Servers.Get(r, k.Key)
		if !ok || q.Standing(r, row.Admission) != Counts {
			continue
		}
		for _, s := range row.Servers {
			if !s.TLS || s.Credential == "" || !slices.Contains(s.Hosts, host) {
				continue
			}
			server := Server{GatewayServer: s, Object: k.Key}
			if winner == nil {
				winner = &server
			} else if winner.Credential != s.Credential || winner.Object.Namespace != k.Key.Namespace {
				server.Winner = winner.Object
			}
			list = append(list, server)
		}
	}
	return list
}
