package route

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// targetKey names a host that rules lead to, as clients of a viewing namespace see it.
type targetKey struct {
	host, layer string
	// rules are the DestinationRules for the host that select those clients.
	rules traffic.SelectingRules
}

// target is what a route depends on of a host that it leads to.
type target struct {
	// host is the host for which this one is another name; empty if it is none.
	host string
	// port is the only port of the service; 0 if it has several.
	port uint32
	// session says how requests of a session reach the same endpoint.
	session mesh.Session
	// policy is the traffic policy if it sets consistent hashing anywhere, else nil: nothing else of it matters to
	// routes.
	policy *traffic.Policy
}

func (t target) equal(o target) bool {
	return t.host == o.host && t.port == o.port && t.session == o.session && (t.policy == nil) == (o.policy == nil) && (t.policy == nil || t.policy.Equal(o.policy))
}

// targetOf is the target as the clients see it.
func (q *Queries) targetOf(r *query.Reader, k targetKey) (target, bool) {
	var t target
	s, ok := q.scope.DestinationService(r, k.host, k.layer)
	if !ok {
		if host, port, is := q.services.AliasOf(r, k.host, k.layer); is {
			t.host, t.port, k.host = host, port, host
			s, ok = q.scope.DestinationService(r, host, k.layer)
		}
	}
	view := service.HostView{Host: k.host, Viewer: q.scope.Viewer(r, k.host, k.layer)}
	if policy := q.traffic.PolicyFor(r, view, k.rules); hasConsistentHash(policy) {
		t.policy = policy
	}
	if ok && t.port == 0 && len(s.Ports) == 1 {
		t.port = s.Ports[0].Number
	}
	if ok && q.tables.Sessions() {
		t.session = s.Session
	}
	return t, true
}

// hasConsistentHash reports whether a policy sets consistent hashing for any port or subset.
func hasConsistentHash(p *traffic.Policy) bool {
	in := func(tp *networking.TrafficPolicy) bool {
		return tp.GetLoadBalancer().GetConsistentHash() != nil ||
			slices.ContainsFunc(tp.GetPortLevelSettings(), func(l *networking.TrafficPolicy_PortTrafficPolicy) bool {
				return l.GetLoadBalancer().GetConsistentHash() != nil
			})
	}
	return p != nil && (in(p.Top) || slices.ContainsFunc(p.Subsets, func(s *networking.Subset) bool { return in(s.TrafficPolicy) }))
}

// hashPolicy is the part of a request by which the endpoint of a port and subset is chosen. It is empty without
// consistent hashing.
func hashPolicy(p *traffic.Policy, subset string, port uint32) []*routev3.RouteAction_HashPolicy {
	return hashPolicies(p.ForPort(p.Subset(subset), port).LoadBalancer.GetConsistentHash())
}

func hashPolicies(in *networking.LoadBalancerSettings_ConsistentHashLB) []*routev3.RouteAction_HashPolicy {
	by := &routev3.RouteAction_HashPolicy{}
	switch key := in.GetHashKey().(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		by.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: key.HttpHeaderName},
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		c := key.HttpCookie
		cookie := &routev3.RouteAction_HashPolicy_Cookie{Name: c.GetName(), Path: c.GetPath(), Ttl: c.GetTtl()}
		for _, a := range c.GetAttributes() {
			cookie.Attributes = append(cookie.Attributes, &routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.Name, Value: a.Value})
		}
		by.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: cookie}
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		by.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: key.UseSourceIp},
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		by.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: key.HttpQueryParameterName},
		}
	default:
		return nil
	}
	return []*routev3.RouteAction_HashPolicy{by}
}
