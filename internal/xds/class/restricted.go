package class

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/class/patching"
	"github.com/pilotmesh/pilot/internal/xds/cluster"
)

// onlyRouted reports whether the proxies of a class have the clusters of the services only that they call: they are gateways, and the control plane
// is set so. Gateways that forward TLS of the mesh have all clusters, because a client may ask for any service.
func (q *Queries) onlyRouted(r *query.Reader, c proxy.Class) bool {
	return c.Gateway && q.tables.FiltersGatewayClusters() && !q.Gateways.PassesMesh(r, gateway.ServedOf(c))
}

// HasClustersOf reports whether the proxies of a class have the clusters of a service that they see. Gateways may have the clusters of those services
// only that they call.
func (q *Queries) HasClustersOf(r *query.Reader, c proxy.Class, host string) bool {
	return !q.onlyRouted(r, c) || q.Gateways.RoutedHosts(r, gateway.RoutingOf(c)).Has(omap.Name(host))
}

// routedLayer is the layer of the clusters of gateways that have no others of services.
func (q *Queries) routedLayer() stackLayer {
	return fromElements("routed", SharedByWorkload, q.clusters.Routed, func(r *query.Reader, c proxy.Class) (k cluster.RoutedKey, ok bool) {
		if !q.onlyRouted(r, c) {
			return k, false
		}
		in := scope.ClientInSet{Set: scope.SetOf(c).WithoutNames(), Client: clientOfClusters(q.Scope.ClientOf(c))}
		return cluster.RoutedKey{Routing: gateway.RoutingOf(c), ClientInSet: in}, true
	})
}

// clientOfClusters returns the attributes of a client that matter to clusters.
func clientOfClusters(c traffic.Client) traffic.Client {
	c.Network = "" // it decides about endpoints only
	if c.Versions == traffic.GatewaysOfBoth {
		c.Versions = traffic.UsualVersions
	}
	return c
}

// restricted restricts the layers of a stack to the classes that have them, and puts a prefix before their names.
func restricted(s stack, prefix string, has func(r *query.Reader, c proxy.Class) bool) stack {
	for i, l := range s {
		s[i].name = prefix + l.name
		s[i].twin = func(g *query.Graph, p *patching.Queries, of patching.Layer) stackLayer {
			return restricted(stack{l.twin(g, p, of)}, prefix, has)[0]
		}
		s[i].layer = func(r *query.Reader, c proxy.Class) (Map, bool) {
			if !has(r, c) {
				return Map{}, false
			}
			return l.layer(r, c)
		}
		s[i].cell = func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
			if !has(r, c) {
				return 0, false
			}
			return l.cell(r, c, name)
		}
		if l.effects != nil {
			s[i].effects = func(r *query.Reader, c proxy.Class) (none omap.Map[patching.Effect, omap.Unit]) {
				if !has(r, c) {
					return none
				}
				return l.effects(r, c)
			}
		}
		if l.difference != nil {
			s[i].difference = func(r *query.Reader, c proxy.Class, filter api.Key) []patching.Difference {
				if !has(r, c) {
					return nil
				}
				return l.difference(r, c, filter)
			}
		}
	}
	return s
}
