package route

import (
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

type ownIn struct {
	set scope.Set
	at  service.OwnPort
}

type ownFor struct {
	scope.Labelled
	at service.OwnPort
}

// defineSniffed adds the route configurations of sniffed ports at addresses of a host's own: whatever Host a request
// names there, it is for that host.
func (q *Queries) defineSniffed(g *query.Graph, s *service.Queries, sc *scope.Queries) {
	at := query.Define(g, "sniffedRoutes", layer.Equal, q.sniffed)
	q.Sniffed = query.Each(g, "sniffedRoutes.all", func(r *query.Reader, k service.All) omap.Map[service.OwnPort, omap.Unit] {
		return s.Taken.Own.Keys(r, k)
	}, at, func(_ service.All, k service.OwnPort) host {
		return host{View: service.View{Host: k.Host}, Port: k.Port}
	})
	scoped := query.Define(g, "scopedSniffedRoutes", layer.Equal, func(r *query.Reader, k ownIn) ([]*resource.Resource, bool) {
		view := sc.View(r, scope.HostIn{Host: k.at.Host, Set: k.set})
		list, _ := at.Get(r, host{View: view, Port: k.at.Port})
		if k.set.Overlay() {
			base, _ := at.Get(r, host{View: service.View{Host: k.at.Host}, Port: k.at.Port})
			list = layer.Cover(list, base, resource.Hide)
		}
		return list, len(list) > 0
	})
	q.ScopedSniffed = query.Each(g, "scopedSniffedRoutes.all", func(r *query.Reader, k scope.Set) omap.Map[service.OwnPort, omap.Unit] {
		return sc.Taken.Own.Keys(r, k)
	}, scoped, func(k scope.Set, p service.OwnPort) ownIn { return ownIn{k, p} })
	labelled := query.Define(g, "labelledSniffedRoutes", layer.Equal, func(r *query.Reader, k ownFor) ([]*resource.Resource, bool) {
		view := sc.View(r, scope.HostIn{Host: k.at.Host, Set: k.Set})
		own, ok := q.callers(r, host{View: view, Port: k.at.Port}, k.Labelled)
		if !ok {
			return nil, false
		}
		return at.Get(r, own)
	})
	q.LabelledSniffed = query.Each(g, "labelledSniffedRoutes.all", func(r *query.Reader, k scope.Labelled) omap.Map[service.OwnPort, omap.Unit] {
		return sc.Labelled.Own.Keys(r, k)
	}, labelled, func(k scope.Labelled, p service.OwnPort) ownFor { return ownFor{k, p} })
}

// sniffed is the route configuration of one such port.
func (q *Queries) sniffed(r *query.Reader, k host) ([]*resource.Resource, bool) {
	s, ok := q.services.Service.Get(r, k.View)
	if !ok {
		return nil, false
	}
	if p, ok := s.Port(k.Port); !ok || !p.Protocol.Sniffed() {
		return nil, false
	}
	b := builder{q: q, r: r, at: k}
	b.rules()
	if len(b.routes) == 0 {
		b.byDefault()
	}
	name := envoy.SniffedRouteName(k.Host, k.Port)
	vhost := envoy.VirtualHost(name, []string{"*"}, b.routes...)
	vhost.IncludeRequestAttemptCount = !b.settings.HideAttempts
	piece := encode(name, vhost)
	pieces := Pieces{}.With(omap.Put(omap.Name(name), piece))
	return []*resource.Resource{resource.NewRoute(name, envoy.Routes(name), pieces)}, true
}
