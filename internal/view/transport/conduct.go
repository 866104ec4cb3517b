package transport

import (
	"net"
	"strconv"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Conduct is how connections are carried, besides where to.
type Conduct struct {
	// Idle is how long a connection may be idle: 0 is the proxy's default, and mesh.NoTimeout is without limit. Lifetime is how
	// long a connection may last; 0 is without limit.
	Idle, Lifetime time.Duration
	// BySource sends all connections from one address to one endpoint.
	BySource bool
	// Target is, as host:port, where the endpoint is asked to lead a connection to; empty: it is the one meant. Post asks
	// by the method POST instead of CONNECT.
	Target string
	Post   bool
}

// methodPost is the protocol of a tunnel that asks by POST.
const methodPost = "POST"

// conduct is how connections to a destination are carried, as the policy for it says.
func (b *builder) conduct(d Destination) Conduct {
	if d.Host == "" {
		return Conduct{}
	}
	view := service.View{Host: d.Host, Layer: b.q.scope.Layer(b.r, d.Host, b.view.Layer)}
	policy := b.q.traffic.PolicyFor(b.r, view, b.q.traffic.Touching(b.r, b.of.rules, d.Host))
	return conductOf(b.q.traffic.Settings(b.r, policy, policy.Subset(d.Subset), d.Port))
}

func conductOf(s traffic.Settings) Conduct {
	tcp := s.ConnectionPool.GetTcp()
	source, _ := s.LoadBalancer.GetConsistentHash().GetHashKey().(*networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp)
	c := Conduct{
		Idle: traffic.IdleTimeout(tcp), Lifetime: tcp.GetMaxConnectionDuration().AsDuration(),
		BySource: source != nil && source.UseSourceIp,
	}
	if t := s.Tunnel; t != nil {
		c.Target = net.JoinHostPort(t.TargetHost, strconv.FormatUint(uint64(t.TargetPort), 10))
		c.Post = t.Protocol == methodPost
	}
	return c
}
