package cluster

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// apply lays the policy in force over a cluster.
func apply(c *clusterv3.Cluster, p mesh.Port, s traffic.Settings) {
	if c.LbPolicy != clusterv3.Cluster_CLUSTER_PROVIDED {
		c.LbPolicy = balancer(s.LoadBalancer)
	}
	tcp, http := s.ConnectionPool.GetTcp(), s.ConnectionPool.GetHttp()
	t := c.CircuitBreakers.Thresholds[0]
	limit(&t.MaxConnections, tcp.GetMaxConnections())
	limit(&t.MaxPendingRequests, http.GetHttp1MaxPendingRequests())
	limit(&t.MaxRequests, http.GetHttp2MaxRequests())
	limit(&t.MaxRetries, http.GetMaxRetries())
	if d := tcp.GetConnectTimeout(); d != nil {
		c.ConnectTimeout = d
	}
	if k := tcp.GetTcpKeepalive(); k != nil {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: keepalive(k)}
	}
	envoy.SetHTTP(c, upstream(p, http), httpOptions(tcp, http))
}

func balancer(lb *networking.LoadBalancerSettings) clusterv3.Cluster_LbPolicy {
	switch lb.GetSimple() {
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		return clusterv3.Cluster_ROUND_ROBIN
	case networking.LoadBalancerSettings_RANDOM:
		return clusterv3.Cluster_RANDOM
	}
	return clusterv3.Cluster_LEAST_REQUEST
}

// limit replaces a threshold by one that the user set.
func limit(at **wrapperspb.UInt32Value, n int32) {
	if n > 0 {
		*at = envoy.Uint(uint32(n))
	}
}

func keepalive(k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *corev3.TcpKeepalive {
	out := &corev3.TcpKeepalive{}
	if k.Probes > 0 {
		out.KeepaliveProbes = envoy.Uint(k.Probes)
	}
	if k.Time != nil {
		out.KeepaliveTime = envoy.Uint(uint32(k.Time.Seconds))
	}
	if k.Interval != nil {
		out.KeepaliveInterval = envoy.Uint(uint32(k.Interval.Seconds))
	}
	return out
}

func upstream(p mesh.Port, http *networking.ConnectionPoolSettings_HTTPSettings) envoy.Upstream {
	switch {
	case http.GetUseClientProtocol() || p.Protocol.Sniffed():
		return envoy.UpstreamAsDownstream
	case p.Protocol.IsHTTP2():
		return envoy.UpstreamHTTP2
	case p.Protocol.IsHTTP() && http.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		return envoy.UpstreamHTTP2
	}
	return envoy.UpstreamHTTP1
}

func httpOptions(tcp *networking.ConnectionPoolSettings_TCPSettings, http *networking.ConnectionPoolSettings_HTTPSettings) *corev3.HttpProtocolOptions {
	o := &corev3.HttpProtocolOptions{
		IdleTimeout:           http.GetIdleTimeout(),
		MaxConnectionDuration: tcp.GetMaxConnectionDuration(),
	}
	if n := http.GetMaxRequestsPerConnection(); n > 0 {
		o.MaxRequestsPerConnection = envoy.Uint(uint32(n))
	}
	if o.IdleTimeout == nil && o.MaxConnectionDuration == nil && o.MaxRequestsPerConnection == nil {
		return nil
	}
	return o
}
