package class

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// Sidecars with hosts on demand have the class state that others have, except that their listeners ask for hosts. The protocol core sends a part of it:
// route configurations without virtual hosts, and few clusters. An answer to a demand is made from the virtual host that the class state has for
// the authority.

// pieces are virtual hosts by name.
type pieces = omap.Map[omap.Name, *resource.Piece]

// demandKey names a virtual host on demand: the answer to a request of proxies of a class.
type demandKey struct {
	class            proxy.Class
	table, authority string
}

// demandedRoute names a route configuration of a class.
type demandedRoute struct {
	class proxy.Class
	name  string
}

// demand are the queries for sidecars with hosts on demand.
type demand struct {
	// pieces are the virtual hosts of a route configuration, with patches applied.
	pieces query.Layers[demandedRoute, omap.Name, *resource.Piece]
	// answers are what sidecars of a class get for an authority.
	answers query.Query[demandKey, Answer]
	// first are the clusters that sidecars of a class have at first.
	first query.Query[proxy.Class, omap.Map[omap.Name, omap.Unit]]
}

func (q *Queries) defineDemand(g *query.Graph) {
	q.demand.pieces = query.DefineLayers(g, "demandedHosts", func(r *query.Reader, k demandedRoute) []pieces {
		for _, l := range q.stacks[resource.Route] {
			if m, ok := l.layer(r, k.class); ok {
				if of, has := m.Get(omap.Name(k.name)); has {
					return []pieces{of.Pieces()}
				}
			}
		}
		return nil
	})
	q.demand.answers = query.Define(g, "demandedHost", Answer.Equal, q.demandedHost)
	q.demand.first = query.Define(g, "firstClusters", omap.Map[omap.Name, omap.Unit].Equal, q.firstClusters)
}

// answerDemand is what a sidecar gets for the name of a virtual host.
func (q *Queries) answerDemand(r *query.Reader, connection, name string) Answer {
	c, _ := q.Class.Get(r, connection)
	of, authority, ok := resource.SplitDemand(name)
	if !ok || !c.HostsOnDemand {
		return Answer{Unexpected: true}
	}
	return q.Demanded(r, c, of, authority)
}

// Demanded is what sidecars with hosts on demand get for an authority, the Host header of a request in lower case, in a route configuration.
func (q *Queries) Demanded(r *query.Reader, c proxy.Class, table, authority string) Answer {
	a, _ := q.demand.answers.Get(r, demandKey{c, table, authority})
	return a
}

// demandedHost is the virtual host that takes requests with an authority, for this authority alone. Hosts that are not declared have one, too, which
// follows the outbound traffic policy.
func (q *Queries) demandedHost(r *query.Reader, k demandKey) (Answer, bool) {
	if p := q.demandedPiece(r, k); p != nil {
		return Answer{Resource: p.Demanded(k.table, k.authority)}, true
	}
	return Answer{Unexpected: true}, true
}

// demandedPiece is the virtual host of the class state that takes requests with an authority; nil if there is none.
func (q *Queries) demandedPiece(r *query.Reader, k demandKey) *resource.Piece {
	if k.authority == "" {
		return nil
	}
	of, audience := demandedRoute{k.class, k.table}, scope.AudienceOf(k.class)
	domains := route.DomainsFor(k.authority)
	if q.patchesRoute(r, of) {
		return firstWith(q.demand.pieces.Merged(r, of), domains)
	}
	for _, d := range domains {
		for _, name := range q.routes.WithDomain(r, audience, k.table, d) {
			if p, ok := q.demand.pieces.Get(r, of, name); ok && !p.Hidden() && slices.Contains(p.Domains(), d) {
				return p
			}
		}
	}
	return nil
}

// patchesRoute reports whether patches are about a route configuration of a class. They may add virtual hosts and change domains.
func (q *Queries) patchesRoute(r *query.Reader, of demandedRoute) bool {
	return slices.ContainsFunc(q.stacks[resource.Route], func(l stackLayer) bool {
		if l.host == nil {
			return false
		}
		m, ok := l.layer(r, of.class)
		return ok && m.Has(omap.Name(of.name))
	})
}

// firstWith is the virtual host with the first domain that some virtual host has; nil if there is none.
func firstWith(all pieces, domains []string) *resource.Piece {
	var found *resource.Piece
	for _, p := range all.All() {
		for i, d := range domains {
			if slices.Contains(p.Domains(), d) {
				found, domains = p, domains[:i]
				break
			}
		}
	}
	return found
}

// outbound begins the names of the clusters of services.
const outbound = "outbound|"

// firstClusters are the clusters that sidecars have before they ask for a host: all that belong to no service, and what listeners, and route configurations
// whose virtual hosts are not got on demand, name.
func (q *Queries) firstClusters(r *query.Reader, c proxy.Class) (all omap.Map[omap.Name, omap.Unit], _ bool) {
	var changes []omap.Change[omap.Name, omap.Unit]
	put := func(name string) { changes = append(changes, omap.Put(omap.Name(name), omap.Unit{})) }
	for _, l := range q.stacks[resource.Cluster] {
		if m, ok := l.layer(r, c); ok && l.first {
			for name := range m.All() {
				put(string(name))
			}
		}
	}
	for _, t := range []resource.Type{resource.Listener, resource.Route} {
		for _, l := range q.stacks[t] {
			for name := range l.clusters(r, c, t).All() {
				changes = append(changes, omap.Put(name, omap.Unit{}))
			}
		}
	}
	return omap.With(all, changes...), true
}

// clusters are the clusters that proxies need because of the listeners or route configurations of a layer.
func (l *stackLayer) clusters(r *query.Reader, c proxy.Class, t resource.Type) (all omap.Map[omap.Name, omap.Unit]) {
	switch {
	case t == resource.Route && !l.first:
		return all
	case l.named != nil:
		return l.named(r, c)
	}
	var changes []omap.Change[omap.Name, omap.Unit]
	m, _ := l.layer(r, c)
	for _, of := range m.All() {
		eachNamed(of, func(_, name omap.Name) { changes = append(changes, omap.Put(name, omap.Unit{})) })
	}
	return omap.With(all, changes...)
}

// eachNamed calls add for each cluster that a listener or a route configuration names, in the empty group. Listeners name the clusters of services
// in filters of many kinds.
func eachNamed(of *resource.Resource, add func(group, name omap.Name)) {
	for _, p := range of.Pieces().All() {
		for _, name := range p.Refs() {
			add("", omap.Name(name))
		}
	}
	if of.Type() == resource.Listener {
		for _, name := range of.Mentioned(outbound) {
			add("", omap.Name(name))
		}
	}
}

// naming returns a function that makes layers of a collection know which clusters its resources name, at the cost of the resources that change.
func naming[K comparable](g *query.Graph, name string, q query.Collection[K, *resource.Resource]) func(l stackLayer, key keyOf[K]) stackLayer {
	groups := query.GroupBy(g, "clustersNamed, "+name, q, eachNamed)
	return func(l stackLayer, key keyOf[K]) stackLayer {
		l.named = func(r *query.Reader, c proxy.Class) (none omap.Map[omap.Name, omap.Unit]) {
			if k, ok := key(r, c); ok {
				return groups.Group(r, k, "")
			}
			return none
		}
		return l
	}
}

// first marks a layer whose clusters, or the clusters that its route configurations name, proxies need before they ask for a host.
func first(l stackLayer) stackLayer {
	l.first = true
	return l
}
