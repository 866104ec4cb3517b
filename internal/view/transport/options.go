package transport

import (
	"net"
	"strconv"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// ConnectionOptions say how connections are forwarded, apart from where to.
type ConnectionOptions struct {
	// IdleTimeout is how long a connection may be without data. 0 means that the proxy's default applies, and
	// mesh.NoTimeout means no limit. MaxDuration is how long a connection may last. 0 means no limit.
	IdleTimeout, MaxDuration time.Duration
	// HashSourceIP sends all connections from one client address to one endpoint.
	HashSourceIP bool
	// TunnelTarget is the host:port that the endpoint is asked to connect to by HTTP CONNECT. If it is empty there is no
	// tunnel. TunnelPOST uses the method POST instead of CONNECT.
	TunnelTarget string
	TunnelPOST   bool
}

// methodPost is the protocol name of a tunnel that uses POST.
const methodPost = "POST"

// connectionOptions are the options that the traffic policy for a destination sets.
func (b *builder) connectionOptions(d Destination) ConnectionOptions {
	if d.Host == "" {
		return ConnectionOptions{}
	}
	view := service.HostView{Host: d.Host, Viewer: b.q.scope.Viewer(b.r, d.Host, b.view.Viewer)}
	policy := b.q.traffic.PolicyFor(b.r, view, b.q.traffic.RulesForHost(b.r, b.clients.rules, d.Host))
	return connectionOptionsOf(b.q.traffic.Settings(b.r, policy, policy.Subset(d.Subset), d.Port))
}

func connectionOptionsOf(s traffic.Settings) ConnectionOptions {
	tcp := s.ConnectionPool.GetTcp()
	source, _ := s.LoadBalancer.GetConsistentHash().GetHashKey().(*networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp)
	c := ConnectionOptions{
		IdleTimeout: traffic.IdleTimeout(tcp), MaxDuration: tcp.GetMaxConnectionDuration().AsDuration(),
		HashSourceIP: source != nil && source.UseSourceIp,
	}
	if t := s.Tunnel; t != nil {
		c.TunnelTarget = net.JoinHostPort(t.TargetHost, strconv.FormatUint(uint64(t.TargetPort), 10))
		c.TunnelPOST = t.Protocol == methodPost
	}
	return c
}
