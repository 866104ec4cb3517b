package cluster

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
)

// passing are the clusters of a host through which gateways forward TLS of the mesh: named as clients ask for them, and without TLS of
// their own. Services outside of the mesh have none.
func (q *Queries) passing(r *query.Reader, at layer.HostForClient) []*clusterv3.Cluster {
	s, ok := q.services.Service.Get(r, at.HostView)
	if !ok || s.External || s.Resolution == mesh.DynamicDNS {
		return nil
	}
	return q.ofPorts(r, at, s, translation.passing)
}

func (t translation) passing(p mesh.Port, subset *networking.Subset) *clusterv3.Cluster {
	name := envoy.ServerName(p.Number, subset.GetName(), t.s.Host)
	settings := t.traffic.Settings(t.r, t.policy, subset, p.Number)
	c := envoy.EDSCluster(name, t.tables.ConnectTimeout(t.r))
	if resolves(t.s) {
		if c = t.dnsCluster(p, name, t.tables.ConnectTimeout(t.r), settings, subset); c == nil {
			return nil
		}
	}
	c.AltStatName = t.outboundStat(name, p, subset.GetName())
	t.setLoadBalancing(c, settings)
	t.setLimits(c, settings)
	t.setOutlierDetection(c, settings.OutlierDetection)
	c.Metadata = envoy.Metadata(t.metadata(p, subset))
	return c
}
