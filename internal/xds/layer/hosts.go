package layer

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Hosts are the layers of resources made host by host.
type Hosts[V query.Output] struct {
	// Base is the layer of the base view, Scoped the layer of a set, and Client holds the results that differ for some clients.
	Base   query.Collection[service.All, V]
	Scoped query.Collection[scope.Set, V]
	Client *ClientLayers[V]
	// at are the results of a host that all clients of its viewer share.
	at query.Query[service.HostView, []V]
}

// Names are the names of the queries behind Hosts.
type Names struct{ Base, Scoped, Client string }

// DefineHosts defines the collections of all layers for one translator.
func DefineHosts[M any, V query.Output](
	g *query.Graph, n Names, services *service.Queries, rules *traffic.Queries, sc *scope.Queries, t Translator[M, V],
) *Hosts[V] {
	at := query.Define(g, n.Base, Equal[V], func(r *query.Reader, v service.HostView) ([]V, bool) {
		list := t.at(r, HostForClient{HostView: v})
		return list, len(list) > 0
	})
	scoped := query.Define(g, n.Scoped, Equal[V], func(r *query.Reader, h scope.HostInSet) ([]V, bool) {
		return layerEntries(h.Set.Overlay(), sc.View(r, h), func(v service.HostView) []V {
			list, _ := at.Get(r, v)
			return list
		}, t.Hide)
	})
	return &Hosts[V]{
		Base: query.Each(g, n.Base+".all",
			func(r *query.Reader, _ service.All) scope.Hosts { return services.PublicHosts(r) },
			at, func(_ service.All, host omap.Name) service.HostView { return service.HostView{Host: string(host)} }),
		Scoped: query.Each(g, n.Scoped+".all",
			func(r *query.Reader, s scope.Set) scope.Hosts { return sc.Hosts(r, s) },
			scoped, func(s scope.Set, host omap.Name) scope.HostInSet { return scope.HostInSet{Host: string(host), Set: s} }),
		Client: defineClientLayers(g, n.Client, rules, sc, t),
		at:     at,
	}
}

// layerEntries are the entries of one host in a layer. at returns the results for the host as a view sees it. In an
// overlay, a host that looks as in the base view has no entries.
func layerEntries[V query.Output](overlay bool, view service.HostView, at func(view service.HostView) []V, hide func(name string) V) ([]V, bool) {
	if overlay && view.Viewer == "" {
		return nil, false
	}
	list := at(view)
	if overlay {
		list = HideMissing(list, at(service.HostView{Host: view.Host}), hide)
	}
	return list, len(list) > 0
}
