package traffic

import (
	"cmp"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Settings are the blocks of a traffic policy that apply to a port. A block is nil if nothing sets it.
type Settings struct {
	LoadBalancer     *networking.LoadBalancerSettings
	ConnectionPool   *networking.ConnectionPoolSettings
	OutlierDetection *networking.OutlierDetection
	TLS              *networking.ClientTLSSettings
	Tunnel           *networking.TrafficPolicy_TunnelSettings
	ProxyProtocol    *networking.TrafficPolicy_ProxyProtocol
	RetryBudget      *networking.TrafficPolicy_RetryBudget
}

// Settings are in force at a port of a service, or of one of its subsets. A block comes from the subset, else from the
// policy as a whole, else from the mesh. The policy and the subset may be nil.
func (q *Queries) Settings(r *query.Reader, p *Policy, subset *networking.Subset, port uint32) Settings {
	s := p.ForPort(subset, port)
	if base := q.tables.Baseline(r); base != nil {
		if s.ConnectionPool == nil {
			s.ConnectionPool = base.ConnectionPool
		}
		if s.OutlierDetection == nil {
			s.OutlierDetection = base.OutlierDetection
		}
	}
	return s
}

// IdleTimeout is how long a TCP connection may be without data. It is 0 if the connection pool does not say it, and
// mesh.NoTimeout if the pool disables the timeout by a duration of zero.
func IdleTimeout(tcp *networking.ConnectionPoolSettings_TCPSettings) time.Duration {
	if tcp.GetIdleTimeout() == nil {
		return 0
	}
	return cmp.Or(tcp.IdleTimeout.AsDuration(), mesh.NoTimeout)
}

// ForPort is the policy at a port: the blocks of the whole, replaced by the blocks of the subset; each with its
// port-level settings.
func (p *Policy) ForPort(subset *networking.Subset, port uint32) Settings {
	var s Settings
	if p == nil {
		return s
	}
	s.apply(p.Top, port)
	s.apply(subset.GetTrafficPolicy(), port)
	return s
}

// Subset is the subset of a name. It is nil for the empty name, and if there is none.
func (p *Policy) Subset(name string) *networking.Subset {
	if p == nil || name == "" {
		return nil
	}
	for _, s := range p.Subsets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// apply lays a policy over the settings. Port-level settings replace all blocks that can be set for a port: a block that
// they omit is not inherited.
func (s *Settings) apply(p *networking.TrafficPolicy, port uint32) {
	if p == nil {
		return
	}
	override(&s.LoadBalancer, p.LoadBalancer)
	override(&s.ConnectionPool, p.ConnectionPool)
	override(&s.OutlierDetection, p.OutlierDetection)
	override(&s.TLS, p.Tls)
	override(&s.Tunnel, p.Tunnel)
	override(&s.ProxyProtocol, p.ProxyProtocol)
	override(&s.RetryBudget, p.RetryBudget)
	for _, l := range p.PortLevelSettings {
		if l.GetPort().GetNumber() == port {
			s.LoadBalancer, s.ConnectionPool, s.OutlierDetection, s.TLS = l.LoadBalancer, l.ConnectionPool, l.OutlierDetection, l.Tls
			return
		}
	}
}

func override[B any](at **B, block *B) {
	if block != nil {
		*at = block
	}
}
