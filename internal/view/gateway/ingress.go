package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// ClassKey returns the key of an IngressClass.
func ClassKey(name string) api.Key { return api.Key{Kind: ingress.ClassKind, Name: name} }

func (q *Queries) judge(r *query.Reader, a gatewayrows.Admission) Standing {
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
	if name := q.classOf(r, a); name != "" {
		class, ok := q.tables.Gateways.Classes.Get(r, ClassKey(name))
		switch {
		case ok && class.Controller == ingress.Controller:
			return Counts
		case ok:
			return Foreign
		case settings.Mode == gateway.IngressDefault:
			return Counts // no controller has the class, and the mesh is the default
		}
		return ClassMissing
	}
	if settings.Mode == gateway.IngressDefault {
		return Counts
	}
	return Unclaimed
}

// classOf returns the name of the IngressClass of an object without the annotation; empty if it has none. An API server completes
// objects without one when they are created; the others are of the newest class that is the default.
func (q *Queries) classOf(r *query.Reader, a gatewayrows.Admission) string {
	if a.Class != "" || !a.Written {
		return a.Class
	}
	name := ""
	for k := range q.tables.Gateways.DefaultClasses.Group(r, struct{}{}).All() {
		name = k.Key.Name // the oldest comes first
	}
	return name
}

// oldestIngress returns the oldest Ingress that counts; false if none does.
func (q *Queries) oldestIngress(r *query.Reader, _ struct{}) (oldest selected.AgeKey, found bool) {
	for a := range q.tables.Gateways.Admissions.Group(r, struct{}{}).All() {
		if q.Standing(r, a) != Counts {
			continue
		}
		for k := range q.tables.Gateways.Admitted.Group(r, a).All() {
			if !found || k.Compare(oldest) < 0 {
				oldest, found = k, true
			}
			break
		}
	}
	return oldest, found
}

// AnyIngress reports whether some Ingress counts.
func (q *Queries) AnyIngress(r *query.Reader) bool {
	_, found := q.oldest.Get(r, struct{}{})
	return found
}

// secured are the servers with a certificate of one Ingress.
type secured struct {
	object  selected.AgeKey
	servers []*Placed
}

// OutputName implements query.Output.
func (s secured) OutputName() string { return s.object.Key.String() }

// ContentHash implements omap.Value.
func (s secured) ContentHash() omap.Hash {
	b := s.object.AppendTo(nil)
	for _, one := range s.servers {
		b = fmt.Appendf(b, "%d %q %q %q", one.Index, one.PortName, one.Hosts, one.TLS.Credentials)
	}
	return omap.Sum(b)
}

// Size implements omap.Value.
func (secured) Size() int { return 0 }

func (s secured) equal(o secured) bool {
	return s.object == o.object && slices.EqualFunc(s.servers, o.servers, (*Placed).equal)
}

// defineIngresses defines which Ingresses count. There is one cell for each with a certificate.
func (q *Queries) defineIngresses(g *query.Graph) {
	q.oldest = query.Define(g, "oldestIngress", func(a, b selected.AgeKey) bool { return a == b }, q.oldestIngress)
	one := query.Define(g, "securedIngress", func(a, b []secured) bool { return slices.EqualFunc(a, b, secured.equal) }, func(r *query.Reader, k selected.AgeKey) ([]secured, bool) {
		s := secured{object: k, servers: q.serversOf(r, k, true)}
		return []secured{s}, len(s.servers) > 0
	})
	q.secured = query.Each(g, "securedIngresses", func(r *query.Reader, _ struct{}) omap.Map[selected.AgeKey, omap.Unit] {
		var all omap.Map[selected.AgeKey, omap.Unit]
		for a := range q.tables.Gateways.Admissions.Group(r, struct{}{}).All() {
			if q.Standing(r, a) != Counts {
				continue
			}
			list := q.tables.Gateways.Secured.Group(r, a)
			if list.Len() > all.Len() {
				list, all = all, list
			}
			changes := make([]omap.Change[selected.AgeKey, omap.Unit], 0, list.Len())
			for k := range list.All() {
				changes = append(changes, omap.Put(k, omap.Unit{}))
			}
			all = omap.With(all, changes...)
		}
		return all
	}, one, func(_ struct{}, k selected.AgeKey) selected.AgeKey { return k })
}

// serversOf returns the servers of an Ingress with or without a certificate.
func (q *Queries) serversOf(r *query.Reader, k selected.AgeKey, secure bool) (list []*Placed) {
	row, ok := q.tables.Gateways.Servers.Get(r, k.Key)
	if !ok {
		return nil
	}
	for i, s := range row.Servers {
		if s.Secure() == secure && (!secure || s.Credential() != "") {
			list = append(list, &Placed{Server: s, Gateway: k.Key, Created: k.Created, Index: i})
		}
	}
	return list
}

// ingressServers returns the servers of the Ingresses that count: one without TLS for all, and one for each certificate.
func (q *Queries) ingressServers(r *query.Reader) []*Placed {
	oldest, ok := q.oldest.Get(r, struct{}{})
	if !ok {
		return nil
	}
	list := q.serversOf(r, oldest, false)
	for _, s := range q.secured.Get(r, struct{}{}).All() {
		list = append(list, s.servers...)
	}
	return list
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

// Servers returns where gateways serve a host: the server without TLS, and the servers with TLS for the narrowest pattern that covers it.
func (q *Queries) Servers(r *query.Reader, h *Host) (list []Server) {
	row, _ := q.tables.Gateways.Servers.Get(r, h.Rules[0].Object)
	for _, s := range row.Servers {
		if !s.Secure() {
			list = append(list, Server{Server: s, Host: h.Name, Object: h.Rules[0].Object})
		}
	}
	for name := range mesh.NarrowestFirst(h.Name) {
		if secure := q.Certificates(r, name); len(secure) > 0 {
			return append(list, secure...)
		}
	}
	return list
}

// Routed reports whether requests for a host at the server with a certificate for a pattern have its routes: some Ingress with rules for
// the host asks for such a certificate itself.
func (q *Queries) Routed(r *query.Reader, h *Host, pattern string) bool {
	return slices.ContainsFunc(h.Rules, func(rule Rule) bool { return q.secures(r, rule.Object, pattern) })
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
