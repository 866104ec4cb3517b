package cluster

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// setLimits bounds the connections, requests and retries of a cluster.
func (t translation) setLimits(c *clusterv3.Cluster, s traffic.Settings) { t.setPool(t.r, c, s) }

func (q *Queries) setPool(r *query.Reader, c *clusterv3.Cluster, s traffic.Settings) {
	tcp, http := s.ConnectionPool.GetTcp(), s.ConnectionPool.GetHttp()
	t := c.CircuitBreakers.Thresholds[0]
	setThreshold(&t.MaxConnections, tcp.GetMaxConnections())
	setThreshold(&t.MaxPendingRequests, http.GetHttp1MaxPendingRequests())
	setThreshold(&t.MaxRequests, http.GetHttp2MaxRequests())
	setThreshold(&t.MaxRetries, http.GetMaxRetries())
	if b := s.RetryBudget; b != nil {
		t.RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{BudgetInterval: b.BudgetInterval}
		if b.Percent != nil {
			t.RetryBudget.BudgetPercent = &typev3.Percent{Value: b.Percent.Value}
		}
		if n := b.MinRetryConcurrency; n > 0 {
			t.RetryBudget.MinRetryConcurrency = envoy.Uint(n)
		}
	}
	if d := tcp.GetConnectTimeout(); d != nil {
		c.ConnectTimeout = d
	}
	if limit := q.tables.Connections(r).ClusterBuffer; limit.Set {
		c.PerConnectionBufferLimitBytes = envoy.Uint(limit.Value)
	}
	if of, own := q.tables.Keepalive(r), tcp.GetTcpKeepalive(); of != nil || own != nil {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: keepalive(of, own)}
	}
}

// setThreshold replaces a threshold if the user set one.
func setThreshold(at **wrapperspb.UInt32Value, n int32) {
	if n > 0 {
		*at = envoy.Uint(uint32(n))
	}
}

// keepalive merges settings field by field. Later ones win; nil ones are skipped.
func keepalive(list ...*networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *corev3.TcpKeepalive {
	out := &corev3.TcpKeepalive{}
	for _, k := range list {
		if n := k.GetProbes(); n > 0 {
			out.KeepaliveProbes = envoy.Uint(n)
		}
		if d := k.GetTime(); d != nil {
			out.KeepaliveTime = envoy.Uint(uint32(d.Seconds))
		}
		if d := k.GetInterval(); d != nil {
			out.KeepaliveInterval = envoy.Uint(uint32(d.Seconds))
		}
	}
	return out
}

// httpOptions say how a cluster speaks HTTP.
func (t translation) httpOptions(p mesh.Port, s traffic.Settings) envoy.HTTP {
	pool := s.ConnectionPool.GetHttp()
	h := envoy.HTTP{Upstream: upstreamHTTP(p.Protocol), CommonOptions: commonHTTPOptions(s.ConnectionPool), ErrorStatuses: s.OutlierDetection.GetOutlierDetectionHttpErrorCodes()}
	if t.client.Gateway && p.Protocol.Sniffed() {
		h.Upstream = envoy.UpstreamHTTP1
	}
	switch {
	case pool.GetUseClientProtocol():
		h.Upstream = envoy.UpstreamAsDownstream
	case t.upgrades(p.Protocol, pool.GetH2UpgradePolicy()):
		h.Upstream = envoy.UpstreamHTTP2
	}
	setHTTP2Options(&h, pool)
	return h
}

// setHTTP2Options sets the options of HTTP/2 connections.
func setHTTP2Options(h *envoy.HTTP, pool *networking.ConnectionPoolSettings_HTTPSettings) {
	if n := pool.GetMaxConcurrentStreams(); n > 0 {
		h.MaxConcurrentStreams = uint32(n)
	}
	if k := pool.GetHttp2KeepAlive(); k != nil {
		h.Keepalive = &corev3.KeepaliveSettings{Interval: k.Interval, Timeout: k.Timeout}
		if k.Timeout == nil { // Envoy requires a timeout
			h.Keepalive.Timeout = envoy.Duration(pingTimeout)
		}
	}
}

// pingTimeout is how long the answer to an HTTP/2 ping is awaited if the user does not say.
const pingTimeout = 20 * time.Second

// upgrades reports whether HTTP/1.1 requests are sent as HTTP/2. A DestinationRule can say so for a port with protocol
// detection; the mesh-wide setting counts for ports that are declared as HTTP only.
func (t translation) upgrades(p mesh.Protocol, policy networking.ConnectionPoolSettings_HTTPSettings_H2UpgradePolicy) bool {
	if !p.IsHTTP() && !p.Sniffed() {
		return false
	}
	switch policy {
	case networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		return true
	case networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE:
		return false
	}
	return p.IsHTTP() && t.tables.HTTP2Upgrade(t.r)
}

// commonHTTPOptions are the limits of single connections. nil means that there are none.
func commonHTTPOptions(pool *networking.ConnectionPoolSettings) *corev3.HttpProtocolOptions {
	tcp, http := pool.GetTcp(), pool.GetHttp()
	o := &corev3.HttpProtocolOptions{
		IdleTimeout:           http.GetIdleTimeout(),
		MaxConnectionDuration: tcp.GetMaxConnectionDuration(),
	}
	if o.IdleTimeout == nil {
		o.IdleTimeout = tcp.GetIdleTimeout()
	}
	if n := http.GetMaxRequestsPerConnection(); n > 0 {
		o.MaxRequestsPerConnection = envoy.Uint(uint32(n))
	}
	if o.IdleTimeout == nil && o.MaxConnectionDuration == nil && o.MaxRequestsPerConnection == nil {
		return nil
	}
	return o
}
