package cluster

import (
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func (q *Queries) fixed(r *query.Reader, f mesh.Families) (Map, bool) {
	timeout := q.tables.ConnectTimeout(r)
	pass := envoy.OriginalDestinationCluster(envoy.PassthroughCluster, timeout)
	base := traffic.Settings{ConnectionPool: q.tables.Baseline(r).GetConnectionPool()}
	q.setPool(r, pass, base)
	envoy.SetHTTP(pass, envoy.HTTP{Upstream: envoy.UpstreamAsDownstream, CommonOptions: commonHTTPOptions(base.ConnectionPool)})
	in := envoy.OriginalDestinationCluster(envoy.InboundPassthroughCluster, timeout)
	envoy.SetHTTP(in, envoy.HTTP{Upstream: envoy.UpstreamAsDownstream})
	envoy.BindInbound(in, f)
	list := []*clusterv3.Cluster{pass, in, envoy.EmptyCluster(envoy.BlackHoleCluster, timeout)}
	if q.tables.OutboundMode(r) == settings.ByName {
		dynamic := envoy.DynamicCluster(envoy.DynamicDNSCluster, timeout, f)
		http := envoy.HTTP{Upstream: envoy.UpstreamAsDownstream}
		q.setUnknownTLS(r, dynamic, &http, q.tables.UnknownTLS(r))
		envoy.SetHTTP(dynamic, http)
		list = append(list, dynamic)
	}
	return asMap(list...), true
}

// gatewayFixed is the cluster that every gateway has. No connection is redirected to a gateway, so it passes none on as it came.
func (q *Queries) gatewayFixed(r *query.Reader, k GatewayFixedKey) (Map, bool) {
	list := []*clusterv3.Cluster{envoy.EmptyCluster(envoy.BlackHoleCluster, q.tables.ConnectTimeout(r))}
	if k.OnDemand {
		list = append(list, envoy.EmptyCluster(envoy.OnDemandCluster, q.tables.ConnectTimeout(r)))
	}
	return asMap(list...), true
}

// onDemand is the cluster that sidecars with hosts on demand have.
func (q *Queries) onDemand(r *query.Reader, _ service.All) (Map, bool) {
	return asMap(envoy.EmptyCluster(envoy.DemandCluster, q.tables.ConnectTimeout(r))), true
}

func asMap(list ...*clusterv3.Cluster) Map {
	var changes []omap.Change[omap.Name, *resource.Resource]
	for _, c := range list {
		changes = append(changes, omap.Put(omap.Name(c.Name), encode(c)))
	}
	return omap.With(Map{}, changes...)
}

// GatewayFixedKey names the clusters that gateways have whatever the objects are.
type GatewayFixedKey struct {
	// OnDemand is true for gateways that get certificates when clients ask for them.
	OnDemand bool
}

// InboundKey names the clusters for the ports that a workload serves.
type InboundKey struct {
	Ports intern.List[proxy.InboundPort]
	// NotIntercepted says that traffic is not redirected to the proxy: it reaches the application at the loopback
	// address.
	NotIntercepted bool
	// Families are the IP versions of the proxy's addresses.
	Families mesh.Families
}

func (q *Queries) inbound(r *query.Reader, k InboundKey) (Map, bool) {
	timeout := q.tables.ConnectTimeout(r)
	var list []*clusterv3.Cluster
	local := k.NotIntercepted || q.tables.InboundLocalhost(r)
	for p := range k.Ports.All() {
		name := envoy.InboundCluster(p.Number)
		c := applicationCluster(name, timeout, p, local, k.Families)
		c.AltStatName = q.inboundStat(r, name, p)
		q.setInboundPool(r, c, p)
		if p.Host != "" {
			c.Metadata = envoy.Metadata(map[string]*structpb.Value{"services": envoy.ServiceMetadata(p.Host, p.Name, p.Namespace)})
			q.nameService(r, c.Metadata, p.Host, p.Namespace)
		}
		list = append(list, c)
	}
	return asMap(list...), true
}

// applicationCluster is the cluster for a port of the workload itself. With local, the application is at the loopback
// address, unless the port has another address.
func applicationCluster(name string, timeout time.Duration, p proxy.InboundPort, local bool, f mesh.Families) *clusterv3.Cluster {
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
		return envoy.StaticCluster(name, timeout, envoy.Address(envoy.LoopbackOf(f), port))
	}
	c := envoy.OriginalDestinationCluster(name, timeout)
	envoy.BindInbound(c, f)
	if err == nil && uint32(to.Port()) != p.Number { // the workload's own address, on another port
		envoy.OverridePort(c, uint32(to.Port()))
	}
	return c
}

// setInboundPool limits connections to the application.
func (q *Queries) setInboundPool(r *query.Reader, c *clusterv3.Cluster, p proxy.InboundPort) {
	s := traffic.Settings{ConnectionPool: q.scope.InboundPool(r, p)}
	q.setPool(r, c, s)
	h := envoy.HTTP{Upstream: upstreamHTTP(p.Protocol), CommonOptions: commonHTTPOptions(s.ConnectionPool)}
	if p.Protocol.IsHTTP() && s.ConnectionPool.GetHttp().GetUseClientProtocol() {
		h.Upstream = envoy.UpstreamAsDownstream
	}
	setHTTP2Options(&h, s.ConnectionPool.GetHttp())
	envoy.SetHTTP(c, h)
}

// upstreamHTTP is the HTTP version for the endpoints of a port, unless a policy changes it.
func upstreamHTTP(p mesh.Protocol) envoy.Upstream {
	switch {
	case p.Sniffed():
		return envoy.UpstreamAsDownstream
	case p.IsHTTP2():
		return envoy.UpstreamHTTP2
	}
	return envoy.UpstreamHTTP1
}
