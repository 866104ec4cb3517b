package envoy

import (
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// TCP is how connections are forwarded, besides where to.
type TCP struct {
	// Idle is how long a connection may be idle: 0 is Envoy's default, and mesh.NoTimeout is without limit. Lifetime is how long a
	// connection may last; 0 is without limit.
	Idle, Lifetime time.Duration
	// BySource sends all connections from one address to one endpoint, if the cluster hashes.
	BySource bool
	// Tunnel is, as host:port, where the endpoint is asked to lead a connection to, by POST or else CONNECT.
	Tunnel string
	Post   bool
}

// apply sets what differs from the usual.
func (o TCP) apply(p *tcpproxyv3.TcpProxy) {
	switch {
	case o.Idle == mesh.NoTimeout:
		p.IdleTimeout = Duration(0)
	case o.Idle > 0:
		p.IdleTimeout = Duration(o.Idle)
	}
	if o.Lifetime > 0 {
		p.MaxDownstreamConnectionDuration = Duration(o.Lifetime)
	}
	if o.BySource {
		p.HashPolicy = []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
	}
	if o.Tunnel != "" {
		p.TunnelingConfig = &tcpproxyv3.TcpProxy_TunnelingConfig{Hostname: o.Tunnel, UsePost: o.Post}
	}
}

// TCPProxy forwards connections to a cluster.
func TCPProxy(stat, cluster string) *listenerv3.Filter { return TCPForward(stat, cluster, TCP{}) }

// TCPForward forwards connections to a cluster, in a certain way.
func TCPForward(stat, cluster string, o TCP) *listenerv3.Filter {
	p := &tcpproxyv3.TcpProxy{StatPrefix: stat, ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: cluster}}
	o.apply(p)
	return networkFilter(tcpProxyFilter, p)
}

// Weighted is a cluster with its share of connections.
type Weighted struct {
	Cluster string
	Weight  uint32
}

// TCPSplit forwards connections to clusters by weight.
func TCPSplit(stat string, list []Weighted, o TCP) *listenerv3.Filter {
	split := &tcpproxyv3.TcpProxy_WeightedCluster{}
	for _, w := range list {
		split.Clusters = append(split.Clusters, &tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight{Name: w.Cluster, Weight: w.Weight})
	}
	p := &tcpproxyv3.TcpProxy{
		StatPrefix: stat, ClusterSpecifier: &tcpproxyv3.TcpProxy_WeightedClusters{WeightedClusters: split},
	}
	o.apply(p)
	return networkFilter(tcpProxyFilter, p)
}
