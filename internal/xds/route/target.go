package route

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// reached names a host that rules lead to, as the callers of a layer see it.
type reached struct {
	host, layer string
	rules       traffic.Rules // about it, that select those callers
}

// target is what a route must know of a host it leads to.
type target struct {
	port   uint32          // the only one of the service; 0 if it has several
	policy *traffic.Policy // if it says anywhere what of a request chooses the endpoint: the rest is not for routes
}

func (t target) equal(o target) bool {
	return t.port == o.port && (t.policy == nil) == (o.policy == nil) && (t.policy == nil || t.policy.Equal(o.policy))
}

// targetOf is the target in the eyes of these callers.
func (q *Queries) targetOf(r *query.Reader, k reached) (target, bool) {
	var t target
	view := service.View{Host: k.host, Layer: q.scope.Layer(r, k.host, k.layer)}
	if policy := q.traffic.PolicyFor(r, view, k.rules); hashes(policy) {
		t.policy = policy
	}
	s, ok := q.scope.Destination(r, k.host, k.layer)
	if ok && len(s.Ports) == 1 {
		t.port = s.Ports[0].Number
	}
	return t, true
}

// hashes reports whether a policy has consistent hashing for any port or subset.
func hashes(p *traffic.Policy) bool {
	in := func(tp *networking.TrafficPolicy) bool {
		return tp.GetLoadBalancer().GetConsistentHash() != nil ||
			slices.ContainsFunc(tp.GetPortLevelSettings(), func(l *networking.TrafficPolicy_PortTrafficPolicy) bool {
				return l.GetLoadBalancer().GetConsistentHash() != nil
			})
	}
	return p != nil && (in(p.Top) || slices.ContainsFunc(p.Subsets, func(s *networking.Subset) bool { return in(s.TrafficPolicy) }))
}

// hashPolicy is what of a request chooses the endpoint of a port and subset; empty if nothing of it does.
func hashPolicy(p *traffic.Policy, subset string, port uint32) []*routev3.RouteAction_HashPolicy {
	return hashBy(p.ForPort(p.Subset(subset), port).LoadBalancer.GetConsistentHash())
}

func hashBy(in *networking.LoadBalancerSettings_ConsistentHashLB) []*routev3.RouteAction_HashPolicy {
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
