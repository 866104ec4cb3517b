package route

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// labelledPortKey names the route configuration of a port for clients with labels.
type labelledPortKey struct {
	scope.LabelledClients
	port uint32
}

// labelledHostKey names a host in such a route configuration.
type labelledHostKey struct {
	labelledPortKey
	host string
}

// defineLabelled defines what clients with labels see differently: hosts whose rules match by one of their labels, and
// the route configurations of these hosts.
func (q *Queries) defineLabelled(g *query.Graph) {
	elem := query.Define(g, "labelledVirtualHost", layer.Equal, q.virtualHostFor)
	q.labelled = query.Each(g, "labelledVirtualHosts", func(r *query.Reader, k labelledPortKey) scope.Hosts {
		return q.scope.LabelledIndex.HTTPPorts.Group(r, k.LabelledClients, exposure.PortNumber(k.port))
	}, elem, func(k labelledPortKey, name omap.Name) labelledHostKey {
		return labelledHostKey{k, string(name)}
	})
	routes := query.Define(g, "labelledRouteConfiguration", layer.Equal, q.routesFor)
	q.Labelled = query.Each(g, "labelledRouteConfigurations", func(r *query.Reader, k scope.LabelledClients) omap.Map[exposure.PortNumber, omap.Unit] {
		return q.scope.LabelledIndex.HTTPPorts.Keys(r, k)
	}, routes, func(k scope.LabelledClients, port exposure.PortNumber) labelledPortKey {
		return labelledPortKey{k, uint32(port)}
	})
}

// virtualHostFor is a virtual host for clients with labels. It is absent if none of their labels matters to it.
func (q *Queries) virtualHostFor(r *query.Reader, k labelledHostKey) ([]*resource.Piece, bool) {
	if k.host == "" {
		return nil, false // the empty name asks only for the route configuration of the port
	}
	at, ok := q.setHostOf(r, setHostKey{scope.HostInSet{Host: k.host, Set: k.Set}, k.port})
	if !ok {
		return nil, false
	}
	if at, ok = q.forClients(r, at, k.LabelledClients); !ok {
		return nil, false
	}
	return q.host.Get(r, at)
}

// forClients returns the key of a virtual host for clients with labels. ok is false if none of their labels matters to
// it.
func (q *Queries) forClients(r *query.Reader, at virtualHostKey, k scope.LabelledClients) (of virtualHostKey, ok bool) {
	at.Labels = q.traffic.RelevantLabels(r, at.HostView, k.Labels, (*state.VirtualService).RequestLabels)
	rules := q.traffic.RulesForHost(r, k.Rules, at.Host)
	if hasConsistentHash(q.traffic.PolicyFor(r, at.HostView, rules)) {
		at.Rules = rules
	}
	return at, !at.Labels.Empty() || at.Rules != (traffic.SelectingRules{})
}

// routesFor is the route configuration of a port for clients with labels.
func (q *Queries) routesFor(r *query.Reader, k labelledPortKey) ([]*resource.Resource, bool) {
	own := q.labelled.Get(r, k)
	if own.Len() == 0 {
		return nil, false
	}
	in := setPortKey{k.Set, k.port}
	pieces := q.scoped.Get(r, in)
	if k.Set.Overlay() {
		pieces = omap.With(q.basePieces(r, k.port, k.Set), overlayChanges(pieces)...)
	}
	return q.configuration(r, k.port, pieces, overlayChanges(own), q.scope.Outbound(r, k.Set)), true
}
