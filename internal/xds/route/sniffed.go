package route

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// setDedicatedKey names the route configuration of a dedicated port in a set.
type setDedicatedKey struct {
	set scope.Set
	at  exposure.HostPort
}

// labelledDedicatedKey names the route configuration of a dedicated port for clients with labels.
type labelledDedicatedKey struct {
	scope.LabelledClients
	at exposure.HostPort
}

// defineSniffed defines the route configurations of dedicated ports: ports with protocol detection at addresses of a
// host's own. All requests there are for that host, whatever their Host header says.
func (q *Queries) defineSniffed(g *query.Graph, s *service.Queries, sc *scope.Queries) {
	at := query.Define(g, "sniffedRoutes", layer.Equal, q.sniffed)
	q.Sniffed = query.Each(g, "sniffedRoutes.all", func(r *query.Reader, k service.All) omap.Map[exposure.HostPort, omap.Unit] {
		return s.Index.DedicatedPorts.Keys(r, k)
	}, at, func(_ service.All, k exposure.HostPort) virtualHostKey {
		return virtualHostKey{HostView: service.HostView{Host: k.Host}, Port: k.Port}
	})
	scoped := query.Define(g, "scopedSniffedRoutes", layer.Equal, func(r *query.Reader, k setDedicatedKey) ([]*resource.Resource, bool) {
		view := sc.View(r, scope.HostInSet{Host: k.at.Host, Set: k.set})
		list, _ := at.Get(r, virtualHostKey{HostView: view, Port: k.at.Port})
		if k.set.Overlay() {
			base, _ := at.Get(r, virtualHostKey{HostView: service.HostView{Host: k.at.Host}, Port: k.at.Port})
			list = layer.HideMissing(list, base, resource.Hide)
		}
		return list, len(list) > 0
	})
	q.ScopedSniffed = query.Each(g, "scopedSniffedRoutes.all", func(r *query.Reader, k scope.Set) omap.Map[exposure.HostPort, omap.Unit] {
		return sc.Index.DedicatedPorts.Keys(r, k)
	}, scoped, func(k scope.Set, p exposure.HostPort) setDedicatedKey { return setDedicatedKey{k, p} })
	labelled := query.Define(g, "labelledSniffedRoutes", layer.Equal, func(r *query.Reader, k labelledDedicatedKey) ([]*resource.Resource, bool) {
		view := sc.View(r, scope.HostInSet{Host: k.at.Host, Set: k.Set})
		own, ok := q.forClients(r, virtualHostKey{HostView: view, Port: k.at.Port}, k.LabelledClients)
		if !ok {
			return nil, false
		}
		return at.Get(r, own)
	})
	q.LabelledSniffed = query.Each(g, "labelledSniffedRoutes.all", func(r *query.Reader, k scope.LabelledClients) omap.Map[exposure.HostPort, omap.Unit] {
		return sc.LabelledIndex.DedicatedPorts.Keys(r, k)
	}, labelled, func(k scope.LabelledClients, p exposure.HostPort) labelledDedicatedKey {
		return labelledDedicatedKey{k, p}
	})
}

// sniffed is the route configuration of one dedicated port.
func (q *Queries) sniffed(r *query.Reader, k virtualHostKey) ([]*resource.Resource, bool) {
	s, ok := q.services.Service.Get(r, k.HostView)
	if !ok {
		return nil, false
	}
	if p, ok := s.Port(k.Port); !ok || !p.Protocol.Sniffed() {
		return nil, false
	}
	b := builder{q: q, r: r, key: k}
	b.addRules()
	if len(b.routes) == 0 {
		b.addDefault()
	}
	name := envoy.SniffedRouteName(k.Host, k.Port)
	vhost := envoy.VirtualHost(name, []string{"*"}, b.routes...)
	vhost.IncludeRequestAttemptCount = !b.settings.HideAttempts
	piece := encode(name, vhost)
	pieces := omap.With(hostPieces{}, omap.Put(omap.Name(name), piece))
	return []*resource.Resource{resource.NewRoute(name, envoy.RouteConfiguration(name), pieces)}, true
}
