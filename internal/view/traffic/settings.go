package traffic

import (
	"cmp"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
)

// Settings are the blocks of a traffic policy in force somewhere; nil where nothing is said.
type Settings struct {
	LoadBalancer     *networking.LoadBalancerSettings
	ConnectionPool   *networking.ConnectionPoolSettings
	OutlierDetection *networking.OutlierDetection
	TLS              *networking.ClientTLSSettings
	Tunnel           *networking.TrafficPolicy_TunnelSettings
	ProxyProtocol    *networking.TrafficPolicy_ProxyProtocol
	RetryBudget      *networking.TrafficPolicy_RetryBudget
}

// Settings is what is in force at a port of a service, or of a subset if it is not nil: what the subset says, else the
// policy as a whole, else the mesh; each with what is said for the port. The policy may be nil.
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

// IdleTimeout returns how long a TCP connection may be idle: 0 if the pool does not say, mesh.NoTimeout if it disables the
// timeout by a duration of zero.
func IdleTimeout(tcp *networking.ConnectionPoolSettings_TCPSettings) time.Duration {
	if tcp.GetIdleTimeout() == nil {
		return 0
	}
	return cmp.Or(tcp.IdleTimeout.AsDuration(), mesh.NoTimeout)
}

// ForPort is the policy in force at a port: that of the subset, else of the whole, replaced block by block with what is
// said for the port.
func (p *Policy) ForPort(subset *networking.Subset, port uint32) Settings {
	var s Settings
	if p == nil {
		return s
	}
	s.apply(p.Top, port)
	s.apply(subset.GetTrafficPolicy(), port)
	return s
}

// Subset is the subset of a name; nil for the empty name, and if there is none.
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

// apply lays a policy over the settings. What is said for the port replaces the blocks that can be said for a port: none
// of those is inherited.
func (s *Settings) apply(p *networking.TrafficPolicy, port uint32) {
	if p == nil {
		return
	}
	over(&s.LoadBalancer, p.LoadBalancer)
	over(&s.ConnectionPool, p.ConnectionPool)
	over(&s.OutlierDetection, p.OutlierDetection)
	over(&s.TLS, p.Tls)
	over(&s.Tunnel, p.Tunnel)
	over(&s.ProxyProtocol, p.ProxyProtocol)
	over(&s.RetryBudget, p.RetryBudget)
	for _, l := range p.PortLevelSettings {
		if l.GetPort().GetNumber() == port {
			s.LoadBalancer, s.ConnectionPool, s.OutlierDetection, s.TLS = l.LoadBalancer, l.ConnectionPool, l.OutlierDetection, l.Tls
			return
		}
	}
}

func over[B any](at **B, block *B) {
	if block != nil {
		*at = block
	}
}
