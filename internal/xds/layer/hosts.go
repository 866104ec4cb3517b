package layer

import (
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Hosts are the layers of what is made host by host.
type Hosts[V query.Output] struct {
	// Base is of what all see; Scoped is that of a set; Own is what differs for some clients.
	Base   *query.Collection[service.All, V]
	Scoped *query.Collection[scope.Set, V]
	Own    *Own[V]
}

// Names are those of the queries behind Hosts.
type Names struct{ Base, Scoped, Own string }

// DefineHosts adds the collections.
func DefineHosts[M any, V query.Output](
	g *query.Graph, n Names, services *service.Queries, rules *traffic.Queries, sc *scope.Queries, t Translator[M, V],
) *Hosts[V] {
	at := query.Define(g, n.Base, Equal[V], func(r *query.Reader, v service.View) ([]V, bool) {
		list := t.at(r, Seen{View: v})
		return list, len(list) > 0
	})
	scoped := query.Define(g, n.Scoped, Equal[V], func(r *query.Reader, h scope.HostIn) ([]V, bool) {
		return forward(h.Set.Overlay(), sc.View(r, h), func(v service.View) []V {
			list, _ := at.Get(r, v)
			return list
		}, t.Hide)
	})
	return &Hosts[V]{
		Base: query.Each(g, n.Base+".all",
			func(r *query.Reader, _ service.All) scope.Hosts { return services.PublicHosts(r) },
			at, func(_ service.All, host omap.Name) service.View { return service.View{Host: string(host)} }),
		Scoped: query.Each(g, n.Scoped+".all",
			func(r *query.Reader, s scope.Set) scope.Hosts { return sc.Hosts(r, s) },
			scoped, func(s scope.Set, host omap.Name) scope.HostIn { return scope.HostIn{Host: string(host), Set: s} }),
		Own: defineOwn(g, n.Own, rules, sc, t),
	}
}

// forward yields one host's entries of a layer. at gives the results for the host as a view sees it. In an overlay, a
// host that looks as in the base has no entries, and others hide what the base has and they have not.
func forward[V query.Output](overlay bool, view service.View, at func(view service.View) []V, hide func(name string) V) ([]V, bool) {
	if overlay && view.Layer == "" {
		return nil, false
	}
	list := at(view)
	if overlay {
		list = Cover(list, at(service.View{Host: view.Host}), hide)
	}
	return list, len(list) > 0
}
