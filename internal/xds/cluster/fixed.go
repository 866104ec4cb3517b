package cluster

import (
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func (q *Queries) fixed(r *query.Reader, _ service.All) (Map, bool) {
	timeout := q.tables.ConnectTimeout(r)
	pass := envoy.OriginalDestinationCluster(envoy.PassthroughCluster, timeout)
	base := traffic.Settings{ConnectionPool: q.tables.Baseline(r).GetConnectionPool()}
	q.pool(r, pass, base)
	envoy.SetHTTP(pass, envoy.HTTP{Upstream: envoy.UpstreamAsDownstream, Common: connections(base.ConnectionPool)})
	in := envoy.OriginalDestinationCluster(envoy.InboundPassthroughCluster, timeout)
	envoy.SetHTTP(in, envoy.HTTP{Upstream: envoy.UpstreamAsDownstream})
	envoy.BindSource(in, envoy.InboundBindAddress)
	list := []*clusterv3.Cluster{pass, in, envoy.EmptyCluster(envoy.BlackHoleCluster, timeout)}
	if q.tables.OutboundMode(r) == state.ByName {
		dynamic := envoy.DynamicCluster(envoy.DynamicDNSCluster, timeout)
		http := envoy.HTTP{Upstream: envoy.UpstreamAsDownstream}
		secureUnknown(dynamic, &http, q.tables.UnknownTLS(r))
		envoy.SetHTTP(dynamic, http)
		list = append(list, dynamic)
	}
	return asMap(list...), true
}

func asMap(list ...*clusterv3.Cluster) Map {
	var changes []omap.Change[omap.Name, *resource.Resource]
	for _, c := range list {
		changes = append(changes, omap.Put(omap.Name(c.Name), encode(c)))
	}
	return Map{}.With(changes...)
}

// Inbound names the clusters of what a workload serves.
type Inbound struct {
	Ports intern.List[proxy.InboundPort]
	// Direct says that nothing redirects: the application is reached on the loopback address.
	Direct bool
}

func (q *Queries) inbound(r *query.Reader, k Inbound) (Map, bool) {
	timeout := q.tables.ConnectTimeout(r)
	var list []*clusterv3.Cluster
	local := k.Direct || q.tables.InboundLocalhost(r)
	for p := range k.Ports.All() {
		name := envoy.InboundCluster(p.Number)
		c := application(name, timeout, p, local)
		c.AltStatName = name + ";"
		q.inboundPool(r, c, p)
		if p.Host != "" {
			c.Metadata = envoy.Metadata(map[string]*structpb.Value{"services": envoy.ServiceMetadata(p.Host, p.Name, p.Namespace)})
		}
		list = append(list, c)
	}
	return asMap(list...), true
}

// application is the cluster of a port of the workload itself. Local: it is reached at the loopback address unless the port
// says otherwise.
func application(name string, timeout time.Duration, p proxy.InboundPort, local bool) *clusterv3.Cluster {
	if path, ok := strings.CutPrefix(p.To, "unix://"); ok {
		return envoy.StaticCluster(name, timeout, envoy.Pipe(path))
	}
	to, err := netip.ParseAddrPort(p.To)
	switch {
	case err == nil && to.Addr().IsLoopback():
		return envoy.StaticCluster(name, timeout, envoy.Address(to.Addr().String(), uint32(to.Port())))
	case local:
		port := p.Number
		if err == nil {
			port = uint32(to.Port())
		}
		return envoy.StaticCluster(name, timeout, envoy.Address(envoy.Loopback, port))
	}
	c := envoy.OriginalDestinationCluster(name, timeout)
	envoy.BindSource(c, envoy.InboundBindAddress)
	if err == nil && uint32(to.Port()) != p.Number { // at the workload's own address, on another port
		envoy.OverridePort(c, uint32(to.Port()))
	}
	return c
}

// inboundPool limits connections to the application.
func (q *Queries) inboundPool(r *query.Reader, c *clusterv3.Cluster, p proxy.InboundPort) {
	s := traffic.Settings{ConnectionPool: q.scope.InboundPool(r, p)}
	q.pool(r, c, s)
	h := envoy.HTTP{Upstream: httpOf(p.Protocol), Common: connections(s.ConnectionPool)}
	if p.Protocol.IsHTTP() && s.ConnectionPool.GetHttp().GetUseClientProtocol() {
		h.Upstream = envoy.UpstreamAsDownstream
	}
	streams(&h, s.ConnectionPool.GetHttp())
	envoy.SetHTTP(c, h)
}

// httpOf is which HTTP the endpoints of a port are taken to speak, where no policy says otherwise.
func httpOf(p mesh.Protocol) envoy.Upstream {
	switch {
	case p.Sniffed():
		return envoy.UpstreamAsDownstream
	case p.IsHTTP2():
		return envoy.UpstreamHTTP2
	}
	return envoy.UpstreamHTTP1
}
