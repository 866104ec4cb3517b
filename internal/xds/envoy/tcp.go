package envoy

import (
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// TCPOptions say how connections are forwarded, apart from where to.
type TCPOptions struct {
	// IdleTimeout is how long a connection may be without data; 0 means Envoy's default, and mesh.NoTimeout means without a
	// limit. MaxDuration is how long it may last; 0 means without a limit.
	IdleTimeout, MaxDuration time.Duration
	// HashSourceIP sends all connections from one address to one endpoint, if the cluster uses consistent hashing.
	HashSourceIP bool
	// TunnelTarget is the host:port that the endpoint is asked to connect to, by CONNECT, or by POST if TunnelPOST is
	// set. If it is empty there is no tunnel.
	TunnelTarget string
	TunnelPOST   bool
}

// apply sets the options that are not the default.
func (o TCPOptions) apply(p *tcpproxyv3.TcpProxy) {
	switch {
	case o.IdleTimeout == mesh.NoTimeout:
		p.IdleTimeout = Duration(0) // Envoy has no timeout then
	case o.IdleTimeout > 0:
		p.IdleTimeout = Duration(o.IdleTimeout)
	}
	if o.MaxDuration > 0 {
		p.MaxDownstreamConnectionDuration = Duration(o.MaxDuration)
	}
	if o.HashSourceIP {
		p.HashPolicy = []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
	}
	if o.TunnelTarget != "" {
		p.TunnelingConfig = &tcpproxyv3.TcpProxy_TunnelingConfig{Hostname: o.TunnelTarget, UsePost: o.TunnelPOST}
	}
}

// TCPProxy forwards connections to a cluster.
func TCPProxy(stat, cluster string) *listenerv3.Filter {
	return TCPForward(stat, cluster, TCPOptions{})
}

// TCPForward forwards connections to a cluster with options.
func TCPForward(stat, cluster string, o TCPOptions) *listenerv3.Filter {
	p := &tcpproxyv3.TcpProxy{StatPrefix: stat, ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: cluster}}
	o.apply(p)
	return NetworkFilter(tcpProxyFilter, p)
}

// Weighted is a cluster with the weight of its share of connections.
type Weighted struct {
	Cluster string
	Weight  uint32
}

// TCPSplit forwards connections to clusters by weight.
func TCPSplit(stat string, list []Weighted, o TCPOptions) *listenerv3.Filter {
	split := &tcpproxyv3.TcpProxy_WeightedCluster{}
	for _, w := range list {
		split.Clusters = append(split.Clusters, &tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight{Name: w.Cluster, Weight: w.Weight})
	}
	p := &tcpproxyv3.TcpProxy{
		StatPrefix: stat, ClusterSpecifier: &tcpproxyv3.TcpProxy_WeightedClusters{WeightedClusters: split},
	}
	o.apply(p)
	return NetworkFilter(tcpProxyFilter, p)
}
