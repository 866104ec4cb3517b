package route

import (
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// portFor names the route configuration of a port for callers with labels.
type portFor struct {
	scope.Labelled
	port uint32
}

type hostFor struct {
	portFor
	host string
}

// defineLabelled adds what callers with labels see instead: hosts whose rules name a label of theirs, and the route
// configurations these are in.
func (q *Queries) defineLabelled(g *query.Graph) {
	elem := query.Define(g, "labelledVirtualHost", layer.Equal, q.virtualHostFor)
	q.labelled = query.Each(g, "labelledVirtualHosts", func(r *query.Reader, k portFor) scope.Hosts {
		return q.scope.Labelled.HTTP.Group(r, k.Labelled, service.Number(k.port))
	}, elem, func(k portFor, name omap.Name) hostFor {
		return hostFor{k, string(name)}
	})
	routes := query.Define(g, "labelledRouteConfiguration", layer.Equal, q.routesFor)
	q.Labelled = query.Each(g, "labelledRouteConfigurations", func(r *query.Reader, k scope.Labelled) omap.Map[service.Number, omap.Unit] {
		return q.scope.Labelled.HTTP.Keys(r, k)
	}, routes, func(k scope.Labelled, port service.Number) portFor { return portFor{k, uint32(port)} })
}

// virtualHostFor is a host for callers with labels; absent if none of these matters to it.
func (q *Queries) virtualHostFor(r *query.Reader, k hostFor) ([]*resource.Piece, bool) {
	if k.host == "" {
		return nil, false // it only asks for the routes of the port
	}
	at, ok := q.hostOf(r, hostIn{scope.HostIn{Host: k.host, Set: k.Set}, k.port})
	if !ok {
		return nil, false
	}
	if at, ok = q.callers(r, at, k.Labelled); !ok {
		return nil, false
	}
	return q.host.Get(r, at)
}

// callers is a host for callers with labels; ok is false if none of these matters to it.
func (q *Queries) callers(r *query.Reader, at host, k scope.Labelled) (of host, ok bool) {
	at.Labels = q.traffic.Named(r, at.View, k.Labels, (*state.VirtualService).RequestLabels)
	rules := q.traffic.Touching(r, k.Rules, at.Host)
	if hashes(q.traffic.PolicyFor(r, at.View, rules)) {
		at.Rules = rules
	}
	return at, !at.Labels.Empty() || at.Rules != (traffic.Rules{})
}

// routesFor is the route configuration of a port for callers with labels.
func (q *Queries) routesFor(r *query.Reader, k portFor) ([]*resource.Resource, bool) {
	own := q.labelled.Get(r, k)
	if own.Len() == 0 {
		return nil, false
	}
	in := portIn{k.Set, k.port}
	pieces := q.scoped.Get(r, in)
	if k.Set.Overlay() {
		pieces = q.hosts.Get(r, k.port).With(over(pieces)...)
	}
	return q.configuration(r, k.port, pieces, over(own), q.scope.Outbound(r, k.Set)), true
}
