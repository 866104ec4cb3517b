package route

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Dedicated names the route configurations of dedicated ports of an audience.
type Dedicated = layer.At[service.All]

// defineSniffed defines the route configurations of dedicated ports: ports with protocol detection at addresses of a
// host's own. All requests there are for that host, whatever their Host header says.
func (q *Queries) defineSniffed(g *query.Graph, s *service.Queries, sc *scope.Queries) {
	at := query.Define(g, "sniffedRoutes", layer.Equal, q.sniffed)
	q.Sniffed = query.Each(g, "sniffedRoutes.all", func(r *query.Reader, k service.All) omap.Map[exposure.HostPort, omap.Unit] {
		return s.Index.DedicatedPorts.Keys(r, k)
	}, at, func(_ service.All, k exposure.HostPort) virtualHostKey {
		return virtualHostKey{HostView: service.HostView{Host: k.Host}, Port: k.Port}
	})
	q.OwnSniffed = layer.Keyed[service.All, virtualHostKey, exposure.HostPort, *resource.Resource]{
		Results: at, Hide: resource.Hide,
		Elements: func(r *query.Reader, k Dedicated) omap.Map[exposure.HostPort, omap.Unit] {
			return sc.ByAudience.DedicatedPorts.Keys(r, k.Audience)
		},
		Keys: func(r *query.Reader, k Dedicated, p exposure.HostPort) []virtualHostKey {
			view := sc.View(r, scope.HostInSet{Host: p.Host, Set: k.Set()})
			if f, _ := s.Footprint(r, view); k.OfBaseView() && !slices.Contains(f.DedicatedPorts, p.Port) {
				return nil // only a narrower audience has an address of the host's own
			}
			return []virtualHostKey{q.forLabels(r, virtualHostKey{HostView: view, Port: p.Port}, k.Audience)}
		},
	}.Own(g, "scopedSniffedRoutes")
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
