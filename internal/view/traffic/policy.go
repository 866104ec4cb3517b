package traffic

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// Policy is what the DestinationRules for a service add up to.
type Policy struct {
	// Objects are the rules it comes from, oldest first.
	Objects []api.Key
	// Top is the policy of the service as a whole; nil if there is none.
	Top *networking.TrafficPolicy
	// Subsets in the order they are declared.
	Subsets []*networking.Subset

	hashes []omap.Hash // of the objects: they stand for the content
}

// Equal reports whether the two come from the same rules.
func (p *Policy) Equal(o *Policy) bool {
	return slices.Equal(p.Objects, o.Objects) && slices.Equal(p.hashes, o.hashes)
}

// ForPort is the policy in force at a port: that of the subset, else of the whole, replaced block by block with what is
// said for the port.
func (p *Policy) ForPort(subset *networking.Subset, port uint32) Settings {
	var s Settings
	if p == nil {
		return s
	}
	s.apply(p.Top, port)
	if subset != nil {
		s.apply(subset.TrafficPolicy, port)
	}
	return s
}

// Settings are the blocks of a traffic policy in force somewhere; nil where nothing is said.
type Settings struct {
	LoadBalancer     *networking.LoadBalancerSettings
	ConnectionPool   *networking.ConnectionPoolSettings
	OutlierDetection *networking.OutlierDetection
	TLS              *networking.ClientTLSSettings
}

// apply lays a policy over the settings. What is said for the port replaces the policy as a whole: nothing is inherited.
func (s *Settings) apply(p *networking.TrafficPolicy, port uint32) {
	if p == nil {
		return
	}
	at := Settings{p.LoadBalancer, p.ConnectionPool, p.OutlierDetection, p.Tls}
	for _, l := range p.PortLevelSettings {
		if l.GetPort().GetNumber() == port {
			*s = Settings{l.LoadBalancer, l.ConnectionPool, l.OutlierDetection, l.Tls}
			return
		}
	}
	if at.LoadBalancer != nil {
		s.LoadBalancer = at.LoadBalancer
	}
	if at.ConnectionPool != nil {
		s.ConnectionPool = at.ConnectionPool
	}
	if at.OutlierDetection != nil {
		s.OutlierDetection = at.OutlierDetection
	}
	if at.TLS != nil {
		s.TLS = at.TLS
	}
}

// policy looks rules up where the client lives, then where the service lives, then in the root namespace. The first
// namespace that has one for the host decides alone, and there the narrowest host.
func (q *Queries) policy(r *query.Reader, v service.View) (*Policy, bool) {
	claims := make([]omap.Map[state.Claim, omap.Unit], 0, 8)
	any := false
	for host := range narrowestFirst(v.Host) {
		m := q.tables.ByHost.Group(r, host)
		claims = append(claims, m)
		for c := range m.All() {
			any = any || c.Kind == state.PolicyClaim && c.VisibleTo(v.Layer)
		}
	}
	if !any {
		return nil, false
	}
	root := q.tables.RootNamespace(r)
	var places []string
	if v.Layer != "" && v.Layer != root {
		places = append(places, v.Layer)
	}
	if home := service.Home(claims[0], v.Layer); home != "" && !slices.Contains(places, home) {
		places = append(places, home)
	}
	if !slices.Contains(places, root) {
		places = append(places, root)
	}
	for _, ns := range places {
		for _, m := range claims {
			if p := q.merge(r, m, v.Layer, ns); p != nil {
				return p, true
			}
		}
	}
	return nil, false
}

// merge adds up the rules of one namespace for one host or pattern: the oldest top-level policy counts, subsets of all.
func (q *Queries) merge(r *query.Reader, claims omap.Map[state.Claim, omap.Unit], layer, namespace string) *Policy {
	var p *Policy
	for c := range claims.All() {
		if c.Kind != state.PolicyClaim || c.Namespace != namespace || !c.VisibleTo(layer) {
			continue
		}
		rule, ok := q.tables.DestinationRules.Get(r, c.Object())
		if !ok {
			continue
		}
		if p == nil {
			p = &Policy{}
		} else if len(p.Objects) == maxRules {
			break
		}
		p.Objects = append(p.Objects, rule.Object)
		p.hashes = append(p.hashes, rule.Hash)
		if p.Top == nil {
			p.Top = rule.Spec.TrafficPolicy
		}
		for _, s := range rule.Spec.Subsets {
			if s.Name != "" && !slices.ContainsFunc(p.Subsets, func(o *networking.Subset) bool { return o.Name == s.Name }) {
				p.Subsets = append(p.Subsets, s)
			}
		}
	}
	return p
}
