package gateway

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Table names a route configuration of the gateways of a namespace.
type Table struct {
	Served
	Namespace, Name string
}

// Shared reports whether the route configuration has hosts of several servers, whose certificates are got on demand.
func (t Table) Shared() bool { return strings.HasPrefix(t.Name, sharedPrefix) }

// Use is the use of a VirtualService for a host at a server.
type Use struct {
	// Gateway is the Gateway of the server, as NAMESPACE/NAME, Index the position of the server in it, and Port the port that it names.
	// Older is the age of the Gateway.
	Gateway string
	Index   int
	Port    uint32
	Older   int64
	// Redirects is true if the server redirects requests to HTTPS, and Secure if it takes them in TLS.
	Redirects, Secure bool
	// Object is the VirtualService or Ingress. It is zero for a host of a server that redirects, which needs no routes.
	Object api.Key
	// Rules is the host or pattern whose rules an Ingress contributes.
	Rules string
	// Rank is 0 for a VirtualService of the namespace of the gateways that others do not see, 1 for one that is exported to it by name,
	// and 2 for one that is exported to all. Created is its age.
	Rank    int
	Created int64
}

// Compare orders uses by precedence: the servers of the oldest Gateway first, and for each server the VirtualServices by rank and age.
func (u Use) Compare(o Use) int {
	return cmp.Or(cmp.Compare(u.Older, o.Older), cmp.Compare(u.Gateway, o.Gateway), cmp.Compare(u.Index, o.Index), cmp.Compare(u.Port, o.Port),
		cmp.Compare(u.Rank, o.Rank), cmp.Compare(u.Created, o.Created), cmp.Compare(u.Object.Name, o.Object.Name), u.Object.Compare(o.Object), cmp.Compare(u.Rules, o.Rules),
		cmp.Compare(flag(u.Redirects), flag(o.Redirects)), cmp.Compare(flag(u.Secure), flag(o.Secure)))
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

// AppendTo appends an unambiguous form. It formats nothing: gateways have a use per host, and each is hashed when a Gateway comes or goes.
func (u Use) AppendTo(b []byte) []byte {
	for _, n := range []int64{int64(u.Index), int64(u.Port), u.Older, int64(flag(u.Redirects)), int64(flag(u.Secure)), int64(u.Rank), u.Created} {
		b = binary.AppendVarint(b, n)
	}
	return gateway.AppendTexts(b, u.Gateway, u.Object.Kind, u.Object.Namespace, u.Object.Name, u.Object.Cluster, u.Rules)
}

// binding is what a VirtualService, or a server that redirects, contributes to a table.
type binding struct {
	name string
	uses []hostUse
}

// hostUse is the use of a VirtualService for a host.
type hostUse struct {
	host string
	Use
}

// OutputName implements query.Output.
func (b binding) OutputName() string { return b.name }

// ContentHash implements omap.Value.
func (b binding) ContentHash() omap.Hash {
	list := gateway.AppendTexts(nil, b.name)
	for _, u := range b.uses {
		list = u.AppendTo(gateway.AppendTexts(list, u.host))
	}
	return omap.Sum(list)
}

// Size implements omap.Value.
func (binding) Size() int { return 0 }

func (b binding) equal(o binding) bool { return b.name == o.name && slices.Equal(b.uses, o.uses) }

// bindingKey is a VirtualService that may contribute to a table; with the zero object, the servers themselves.
type bindingKey struct {
	Table
	object api.Key
}

func (q *Queries) defineBindings(g *query.Graph) {
	q.defineCandidates(g)
	elem := query.Define(g, "gatewayBinding", func(a, b []binding) bool { return slices.EqualFunc(a, b, binding.equal) }, q.bind)
	all := query.Each(g, "gatewayBindings", q.bound, elem, func(t Table, k api.Key) bindingKey { return bindingKey{t, k} })
	q.uses = query.GroupBy(g, "gatewayUses", all, func(b binding, add func(omap.Name, Use)) {
		for _, u := range b.uses {
			add(omap.Name(u.host), u.Use)
		}
	})
}

// VirtualHosts returns the hosts of a table.
func (q *Queries) VirtualHosts(r *query.Reader, t Table) omap.Map[omap.Name, omap.Unit] {
	return q.uses.Keys(r, t)
}

// Uses returns the VirtualServices for a host of a table, in the order of precedence.
func (q *Queries) Uses(r *query.Reader, t Table, host string) omap.Map[Use, omap.Unit] {
	return q.uses.Group(r, t, omap.Name(host))
}

// bound returns the VirtualServices that are bound to the Gateways of a table and that the namespace sees, the Ingresses that may have
// routes for its servers, and the zero key.
func (q *Queries) bound(r *query.Reader, t Table) omap.Map[api.Key, omap.Unit] {
	all := q.objects.Keys(r, t)
	if servers, _ := q.servers.Get(r, tableKey{t.Served, t.Name}, owner(api.Key{Kind: ingress.Kind})); len(servers) > 0 && !servers[0].Secure() {
		all = union(all, q.tables.Gateways.Routed.Group(r, struct{}{}))
	}
	return omap.With(all, omap.Put(api.Key{}, omap.Unit{}))
}

// ownerKey names the servers of an object in a table; see owner.
type ownerKey struct {
	Table
	owner api.Key
}

// candidates are the objects that may have routes for the servers of an object in a table.
type candidates struct {
	owner   api.Key
	objects omap.Map[api.Key, omap.Unit]
}

func (c candidates) set() omap.Map[api.Key, omap.Unit] { return c.objects }
func (c candidates) of() api.Key                       { return c.owner }

// OutputName implements query.Output.
func (c candidates) OutputName() string { return c.owner.String() }

// ContentHash implements omap.Value.
func (c candidates) ContentHash() omap.Hash { return c.objects.Hash() }

// Size implements omap.Value.
func (candidates) Size() int { return 0 }

// defineCandidates defines the objects of a table. There is one cell per Gateway, so that another one costs its own objects.
func (q *Queries) defineCandidates(g *query.Graph) {
	same := func(a, b []candidates) bool {
		return slices.EqualFunc(a, b, func(a, b candidates) bool { return a.objects.Equal(b.objects) })
	}
	one := query.Define(g, "gatewayCandidates", same, func(r *query.Reader, k ownerKey) ([]candidates, bool) {
		c := candidates{k.owner, q.candidatesOf(r, k)}
		return []candidates{c}, c.objects.Len() > 0
	})
	byOwner := query.Each(g, "gatewayOwners", func(r *query.Reader, t Table) omap.Map[api.Key, placedList] {
		return q.servers.Merged(r, tableKey{t.Served, t.Name})
	}, one, func(t Table, k api.Key) ownerKey { return ownerKey{t, k} })
	q.objects = query.GroupSets(g, "gatewayObjects", byOwner, candidates.set, candidates.of)
}

// candidatesOf returns the objects that may have routes for the servers of an object in a table, except Ingresses for the server without TLS.
func (q *Queries) candidatesOf(r *query.Reader, k ownerKey) (none omap.Map[api.Key, omap.Unit]) {
	servers, _ := q.servers.Get(r, tableKey{k.Served, k.Name}, k.owner)
	switch {
	case len(servers) == 0 || servers[0].ofIngress() && !servers[0].Secure():
		return none
	case servers[0].ofIngress():
		return q.ingressesFor(r, servers)
	case len(servers) == 1:
		return q.boundFor(r, servers[0], k.Namespace)
	}
	return q.boundTo(r, servers[0].Gateway, k.Namespace)
}

// ingressesFor returns the Ingresses that may have routes at a certificate.
func (q *Queries) ingressesFor(r *query.Reader, servers []*Placed) omap.Map[api.Key, omap.Unit] {
	var all []omap.Change[api.Key, omap.Unit]
	for _, s := range servers {
		for _, host := range s.Hosts[:min(len(s.Hosts), maxShared)] {
			for k := range q.tables.Gateways.ServersFor.Group(r, host.Name).All() {
				all = append(all, omap.Put(k.Key, omap.Unit{}))
			}
		}
	}
	return omap.With(omap.Map[api.Key, omap.Unit]{}, all...)
}

// maxShared bounds for how many hosts of a certificate other Ingresses may have routes, if they name a certificate for the host, too. The
// Ingress of the certificate itself is among those for the first host.
const maxShared = 100

// boundTo returns the VirtualServices bound to a Gateway that the gateways of a namespace see.
func (q *Queries) boundTo(r *query.Reader, gw api.Key, namespace string) (all omap.Map[api.Key, omap.Unit]) {
	for _, layer := range []string{"", namespace} {
		all = union(all, q.tables.Gateways.BoundTo.Group(r, gatewayrows.Layer{Gateway: gw, Layer: layer}))
	}
	return all
}

// boundFor returns the VirtualServices of boundTo that may have a host of the server. A server with few hosts and no pattern finds them by host: a Gateway with a thousand
// servers with TLS and a thousand VirtualServices would otherwise have a million pairs.
func (q *Queries) boundFor(r *query.Reader, s *Placed, namespace string) omap.Map[api.Key, omap.Unit] {
	const few = 20
	if len(s.Hosts) > few || slices.ContainsFunc(s.Hosts, func(h gateway.Host) bool { return !h.Exact() }) {
		return q.boundTo(r, s.Gateway, namespace)
	}
	var all omap.Map[api.Key, omap.Unit]
	for _, h := range s.Hosts {
		for name := range mesh.NarrowestFirst(h.Name) {
			for _, layer := range []string{"", namespace} {
				at := gatewayrows.Host{Layer: gatewayrows.Layer{Gateway: s.Gateway, Layer: layer}, Host: name}
				all = union(all, q.tables.Gateways.BoundHosts.Group(r, at))
			}
		}
	}
	return all
}

// bind returns what a VirtualService contributes to a table.
func (q *Queries) bind(r *query.Reader, k bindingKey) ([]binding, bool) {
	b := binding{name: k.object.String()}
	if k.object == (api.Key{}) {
		b.name = "servers"
		for _, s := range q.redirecting(r, k.Table) {
			for _, host := range s.Hosts {
				b.uses = append(b.uses, hostUse{host.Name, useOf(s)})
			}
		}
		return []binding{b}, len(b.uses) > 0
	}
	if k.object.Kind == ingress.Kind {
		return q.bindIngress(r, k)
	}
	row, ok := q.tables.Gateways.Bindings.Get(r, k.object)
	if !ok {
		return nil, false
	}
	for _, s := range q.serversFor(r, k.Table, row.Hosts, row.Gateways...) {
		if !slices.Contains(row.Gateways, s.Gateway) {
			continue
		}
		for _, host := range intersect(s.Server, row.Hosts, k.object.Namespace) {
			u := useOf(s)
			u.Object, u.Rank, u.Created = k.object, rankOf(row, k.object, k.Namespace), row.Created
			b.uses = append(b.uses, hostUse{host, u})
		}
	}
	return []binding{b}, len(b.uses) > 0
}

// bindIngress returns what an Ingress contributes to a table: all its hosts where there is no TLS, and where there is, those for which it
// asks for a certificate itself.
func (q *Queries) bindIngress(r *query.Reader, of bindingKey) ([]binding, bool) {
	k := of.object
	row, ok := q.tables.Gateways.Routes.Get(r, k)
	if !ok || q.Standing(r, row.Admission) != Counts {
		return nil, false
	}
	b := binding{name: k.String()}
	for _, s := range q.serversFor(r, of.Table, q.securedHosts(r, k), k) {
		if !s.ofIngress() {
			continue
		}
		for _, host := range s.Hosts {
			if s.Secure() && !q.secures(r, k, host.Name) {
				continue
			}
			for _, route := range row.Routes {
				u := Use{Port: s.Port, Object: k, Created: row.Created, Older: row.Created, Rules: route.Host}
				if both := (hostUse{narrower(host.Name, route.Host), u}); both.host != "" && !slices.Contains(b.uses, both) {
					b.uses = append(b.uses, both)
				}
			}
		}
	}
	return []binding{b}, len(b.uses) > 0
}

// securedHosts returns the hosts, without patterns, for which an Ingress has a certificate.
func (q *Queries) securedHosts(r *query.Reader, k api.Key) (list []string) {
	row, ok := q.tables.Gateways.Servers.Get(r, k)
	if !ok {
		return nil
	}
	for _, s := range row.Servers {
		for _, h := range s.Hosts {
			if s.Credential() != "" && h.Exact() {
				list = append(list, h.Name)
			}
		}
	}
	return list
}

// secures reports whether an Ingress has a certificate for a host or pattern.
func (q *Queries) secures(r *query.Reader, k api.Key, host string) bool {
	row, ok := q.tables.Gateways.Servers.Get(r, k)
	return ok && row.Secures(host)
}

// redirecting returns the servers of a table that redirect requests to HTTPS. Shared hosts take TLS, so none of their servers does.
func (q *Queries) redirecting(r *query.Reader, t Table) []*Placed {
	if t.Shared() {
		return nil
	}
	return slices.DeleteFunc(q.serversOfTable(r, t), func(s *Placed) bool { return !s.Redirects() })
}

func useOf(s *Placed) Use {
	return Use{Gateway: Name(s.Gateway), Index: s.Index, Port: s.Port, Older: s.Created, Redirects: s.Redirects(), Secure: s.Secure()}
}

// Name is the name of a Gateway as the matches of rules have it.
func Name(k api.Key) string { return k.Namespace + "/" + k.Name }

// rankOf is the rank of a VirtualService for the gateways of a namespace; see Use.
func rankOf(row *gatewayrows.Binding, object api.Key, namespace string) int {
	switch {
	case row.Public():
		return 2
	case object.Namespace == namespace:
		return 0
	}
	return 1
}

// BoundObject is a VirtualService with the hosts for which a server has its rules.
type BoundObject struct {
	Object api.Key
	Hosts  []string
}

// Bound returns the VirtualServices whose rules a server of gateways has, in the order of precedence.
func (q *Queries) Bound(r *query.Reader, p Proxies, s *Placed) (list []BoundObject) {
	var uses []Use
	hosts := map[api.Key][]string{}
	for k := range q.boundFor(r, s, p.Namespace).All() {
		row, ok := q.tables.Gateways.Bindings.Get(r, k)
		if !ok {
			continue
		}
		if hosts[k] = intersect(s.Server, row.Hosts, k.Namespace); len(hosts[k]) > 0 {
			uses = append(uses, Use{Object: k, Rank: rankOf(row, k, p.Namespace), Created: row.Created})
		}
	}
	slices.SortFunc(uses, Use.Compare)
	for _, u := range uses {
		list = append(list, BoundObject{u.Object, hosts[u.Object]})
	}
	return list
}

// intersect returns the hosts for which a server has the routes of an object of a namespace: for each host of the
// server and host of the object where one covers the other, the narrower one.
func intersect(s gateway.Server, hosts []string, namespace string) (both []string) {
	add := func(host string) {
		if !slices.Contains(both, host) {
			both = append(both, host)
		}
	}
	for _, own := range s.Hosts {
		if own.Namespace != "" && own.Namespace != namespace {
			continue
		}
		for _, host := range hosts {
			if name := narrower(own.Name, host); name != "" {
				add(name)
			}
		}
	}
	return both
}

// narrower returns the one of two hosts that the other covers; empty if neither covers the other.
func narrower(a, b string) string {
	switch {
	case mesh.Covers(a, b):
		return b
	case mesh.Covers(b, a):
		return a
	}
	return ""
}

// Rules returns a VirtualService with the rules of its delegates in place; false if there is none.
func (q *Queries) Rules(r *query.Reader, k api.Key) (*state.VirtualService, bool) {
	vs, ok := q.tables.VirtualServices.Get(r, k)
	if ok && vs.Delegates() {
		if m, found := q.traffic.Merged.Get(r, k); found {
			return m.VirtualService, true
		}
	}
	return vs, ok
}

// Proxies are gateways, with the facets that their routes depend on.
type Proxies struct {
	Served
	Namespace string
	// Labels are the labels of theirs that rules match by, and Rules the DestinationRules that select them.
	Labels mesh.Labels
	Rules  traffic.SelectingRules
}

// Table returns a route configuration of the gateways.
func (p Proxies) Table(name string) Table { return Table{p.Served, p.Namespace, name} }
