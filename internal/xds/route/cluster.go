package route

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A service has its own addresses in each cluster, and they are domains of its virtual host. Which ones differs between clusters, so
// the virtual hosts concerned form a layer for each cluster, over the layer of the base view. All others are shared.

// Reach selects the addresses of services that clients call: addresses of their cluster and their IP versions.
type Reach struct {
	families mesh.Families
	cluster  string
}

// ReachOf is the reach of a class.
func ReachOf(c proxy.Class) Reach { return Reach{c.Families, c.Cluster} }

func reachOf(s scope.Set) Reach { return Reach{s.Families, s.Cluster} }

// clusterPortKey names the route configuration of a port in the base view, in a cluster.
type clusterPortKey struct {
	port uint32
	Reach
}

// clusterHostKey names a host in such a route configuration.
type clusterHostKey struct {
	clusterPortKey
	host string
}

// defineByCluster defines what differs between clusters.
func (q *Queries) defineByCluster(g *query.Graph, s *service.Queries) {
	elem := query.Define(g, "clusterVirtualHost", layer.Equal, q.virtualHostInCluster)
	q.clusterHosts = query.Each(g, "clusterVirtualHosts", func(r *query.Reader, k clusterPortKey) scope.Hosts {
		return s.Index.HTTPPorts.Group(r, service.All{}, exposure.PortNumber(k.port))
	}, elem, func(k clusterPortKey, name omap.Name) clusterHostKey { return clusterHostKey{k, string(name)} })
	routes := query.Define(g, "clusterRouteConfiguration", layer.Equal, func(r *query.Reader, k clusterPortKey) ([]*resource.Resource, bool) {
		own := q.clusterHosts.Get(r, k)
		if own.Len() == 0 {
			return nil, false
		}
		return q.configuration(r, k.port, q.hosts.Get(r, basePortKey{k.port, k.families}), overlayChanges(own), settings.Outbound{Mode: q.tables.OutboundMode(r)}), true
	})
	q.ByCluster = query.Each(g, "clusterRouteConfigurations", func(r *query.Reader, _ Reach) omap.Map[exposure.PortNumber, omap.Unit] {
		return s.Index.HTTPPorts.Keys(r, service.All{})
	}, routes, func(k Reach, port exposure.PortNumber) clusterPortKey { return clusterPortKey{uint32(port), k} })
}

// virtualHostInCluster is the virtual host of a host in the layer of a cluster.
func (q *Queries) virtualHostInCluster(r *query.Reader, k clusterHostKey) ([]*resource.Piece, bool) {
	if k.host == "" {
		return nil, false // the empty name asks only for the route configuration of the port
	}
	all := virtualHostKey{HostView: service.HostView{Host: k.host}, Port: k.port, Families: k.families}
	own, ok := q.withDomains(r, all, inCluster(k.cluster))
	if ok && own == all {
		return nil, false
	}
	var list []*resource.Piece
	if ok {
		list, _ = q.host.Get(r, own)
	}
	base, _ := q.host.Get(r, all)
	list = layer.HideMissing(list, base, resource.HidePiece)
	return list, len(list) > 0
}

// inCluster is the table of the base view in a cluster.
func inCluster(cluster string) domainTable {
	return domainTable{setProxyKey: setProxyKey{set: scope.Set{Cluster: cluster}}}
}

// baseHost is the virtual host of a host that the layer of an overlay lies over.
func (q *Queries) baseHost(r *query.Reader, host string, port uint32, set scope.Set) []*resource.Piece {
	at := virtualHostKey{HostView: service.HostView{Host: host}, Port: port, Families: set.Families}
	if set.Cluster != "" {
		own, ok := q.withDomains(r, at, inCluster(set.Cluster))
		if !ok {
			return nil
		}
		at = own
	}
	list, _ := q.host.Get(r, at)
	return list
}

// basePieces are the virtual hosts of a port that the layer of an overlay lies over.
func (q *Queries) basePieces(r *query.Reader, port uint32, set scope.Set) hostPieces {
	pieces := q.hosts.Get(r, basePortKey{port, set.Families})
	if set.Cluster == "" {
		return pieces
	}
	return omap.With(pieces, overlayChanges(q.clusterHosts.Get(r, clusterPortKey{port, reachOf(set)}))...)
}
