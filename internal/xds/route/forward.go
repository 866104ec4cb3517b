package route

import (
	"cmp"
	"math"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// forward is the action that forwards to the destinations of a rule. authority replaces the Host header unless it is
// empty.
func (b *builder) forward(rule *networking.HTTPRoute, authority string) *routev3.Route_Route {
	a := envoy.Forward(rule.Timeout)
	setRewrite(a, rule.Rewrite, authority)
	b.mirrors(a, rule)
	if len(rule.Route) == 1 {
		cluster, hash := b.cluster(rule.Route[0].Destination)
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: cluster}
		a.HashPolicy = append(a.HashPolicy, hash...)
	} else {
		b.weighted(a, rule.Route)
	}
	policy := rule.Retries
	if policy == nil {
		policy = b.settings.Retries
	}
	a.RetryPolicy = retries(policy, len(a.HashPolicy) > 0)
	a.AppendXForwardedHost = b.settings.ForwardHost && a.HostRewriteSpecifier != nil
	return &routev3.Route_Route{Route: a}
}

// setRewrite sets how path and Host header change. The authority of a rewrite comes before one that a header operation
// sets.
func setRewrite(a *routev3.RouteAction, w *networking.HTTPRewrite, authority string) {
	if re := w.GetUriRegexRewrite(); re != nil {
		a.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
			Pattern: &matcherv3.RegexMatcher{Regex: re.Match}, Substitution: re.Rewrite,
		}
	} else {
		a.PrefixRewrite = w.GetUri()
	}
	if w.GetAuthority() != "" {
		authority = w.GetAuthority()
	}
	if authority != "" {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
	}
}

// weighted splits requests among the destinations with a weight. In Envoy, the Host header of a weighted cluster
// overrides the route's. Here the rule comes first, as it does with a single destination.
func (b *builder) weighted(a *routev3.RouteAction, list []*networking.HTTPRouteDestination) {
	list = withWeight(list)
	shift := shiftOf(list)
	clusters := make([]*routev3.WeightedCluster_ClusterWeight, 0, len(list))
	for _, d := range list {
		cluster, hash := b.cluster(d.Destination)
		a.HashPolicy = append(a.HashPolicy, hash...)
		changes := headerOperations(d.Headers)
		w := &routev3.WeightedCluster_ClusterWeight{
			Name: cluster, Weight: envoy.Uint(uint32(d.Weight) >> shift),
			RequestHeadersToAdd: changes.requestAdd, RequestHeadersToRemove: changes.requestRemove,
			ResponseHeadersToAdd: changes.responseAdd, ResponseHeadersToRemove: changes.responseRemove,
			TypedPerFilterConfig: b.session(d.GetDestination().GetHost(), nil),
		}
		if changes.authority != "" && a.HostRewriteSpecifier == nil {
			w.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: changes.authority}
		}
		clusters = append(clusters, w)
	}
	a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{
		WeightedClusters: &routev3.WeightedCluster{Clusters: clusters},
	}
}

// withWeight are the destinations that receive traffic.
func withWeight(list []*networking.HTTPRouteDestination) []*networking.HTTPRouteDestination {
	var out []*networking.HTTPRouteDestination
	for _, d := range list {
		if d.Weight > 0 {
			out = append(out, d)
		}
	}
	return out
}

// shiftOf is the number of bits by which weights must be shifted right so that their sum fits in 32 bits.
func shiftOf(list []*networking.HTTPRouteDestination) int {
	sum := uint64(0)
	for _, d := range list {
		sum += uint64(d.Weight)
	}
	shift := 0
	for sum>>shift > math.MaxUint32 {
		shift++
	}
	return shift
}

// mirrors adds the mirrors of a rule. A mirror with a share of zero is left out.
func (b *builder) mirrors(a *routev3.RouteAction, rule *networking.HTTPRoute) {
	if rule.Mirror != nil {
		share := 100.0
		switch {
		case rule.MirrorPercentage != nil:
			share = rule.MirrorPercentage.Value
		case rule.MirrorPercent != nil: //nolint:staticcheck // the deprecated field is still read where it is the only one
			share = float64(rule.MirrorPercent.Value) //nolint:staticcheck // as above
		}
		b.mirror(a, rule.Mirror, share)
	}
	for _, m := range rule.Mirrors {
		share := 100.0
		if m.Percentage != nil {
			share = m.Percentage.Value
		}
		b.mirror(a, m.Destination, share)
	}
}

func (b *builder) mirror(a *routev3.RouteAction, d *networking.Destination, share float64) {
	if share <= 0 {
		return
	}
	cluster, _ := b.cluster(d)
	a.RequestMirrorPolicies = append(a.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
		Cluster: cluster, RuntimeFraction: envoy.Share(share), TraceSampled: envoy.Bool(false),
		DisableShadowHostSuffixAppend: true,
	})
}

// cluster is the cluster of a destination, and the hash policies that choose the endpoint in it.
func (b *builder) cluster(d *networking.Destination) (name string, hash []*routev3.RouteAction_HashPolicy) {
	t := b.target(d.GetHost())
	port := b.port(d, t)
	name = envoy.OutboundCluster(port, d.GetSubset(), cmp.Or(t.host, d.GetHost()))
	return name, hashPolicy(t.policy, d.GetSubset(), port)
}

// session adds to the configurations of filters how requests to a host stay with the endpoint of their session, if they do.
func (b *builder) session(host string, configs map[string]*anypb.Any) map[string]*anypb.Any {
	session := b.target(host).session
	if session == (mesh.Session{}) {
		return configs
	}
	if configs == nil {
		configs = map[string]*anypb.Any{}
	}
	configs[envoy.SessionFilter] = envoy.SessionRoute(session)
	return configs
}

// target looks up a host that rules lead to.
func (b *builder) target(host string) target {
	if t, known := b.targets[host]; known || len(b.targets) == traffic.MaxTargets {
		return t
	}
	t, _ := b.q.target.Get(b.r, targetKey{host, b.key.Viewer, b.q.traffic.RulesForHost(b.r, b.key.Rules, host)})
	if b.targets == nil {
		b.targets = map[string]target{}
	}
	b.targets[host] = t
	return t
}

// port is the port of a destination: the given one, else the only port of the service, else the port of the request.
func (b *builder) port(d *networking.Destination, t target) uint32 {
	if n := d.GetPort().GetNumber(); n != 0 {
		return n
	}
	if t.port != 0 {
		return t.port
	}
	return b.key.Port
}
