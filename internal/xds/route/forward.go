package route

import (
	"math"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// forward is the action that forwards to the destinations of a rule, under another name of the host if one is given.
func (b *builder) forward(rule *networking.HTTPRoute, authority string) *routev3.Route_Route {
	a := envoy.Forward(rule.Timeout)
	rewrite(a, rule.Rewrite, authority)
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

// rewrite changes path and host. The host that a rewrite names goes before the one that an operation on headers sets.
func rewrite(a *routev3.RouteAction, w *networking.HTTPRewrite, authority string) {
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

// weighted splits requests among the destinations that have a weight. Envoy would let the host that a destination sets
// go before the one of the rule: it is the other way round here, as with a single destination.
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

// withWeight are the destinations that get any traffic.
func withWeight(list []*networking.HTTPRouteDestination) []*networking.HTTPRouteDestination {
	var out []*networking.HTTPRouteDestination
	for _, d := range list {
		if d.Weight > 0 {
			out = append(out, d)
		}
	}
	return out
}

// shiftOf is by how many bits weights must shrink for their sum to fit.
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

// mirrors sends copies of requests elsewhere; a share of zero is no mirror at all.
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

// cluster is where a destination's requests go, and what of them chooses the endpoint there.
func (b *builder) cluster(d *networking.Destination) (name string, hash []*routev3.RouteAction_HashPolicy) {
	t := b.target(d.GetHost())
	port := b.port(d, t)
	name = envoy.OutboundCluster(port, d.GetSubset(), d.GetHost())
	return name, hashPolicy(t.policy, d.GetSubset(), port)
}

// target is what is known of a host that rules lead to.
func (b *builder) target(host string) target {
	if t, known := b.targets[host]; known || len(b.targets) == traffic.MaxTargets {
		return t
	}
	t, _ := b.q.target.Get(b.r, reached{host, b.at.Layer, b.q.traffic.Touching(b.r, b.at.Rules, host)})
	if b.targets == nil {
		b.targets = map[string]target{}
	}
	b.targets[host] = t
	return t
}

// port is the port of a destination: as given, else the only one of the service, else the one that was called.
func (b *builder) port(d *networking.Destination, t target) uint32 {
	if n := d.GetPort().GetNumber(); n != 0 {
		return n
	}
	if t.port != 0 {
		return t.port
	}
	return b.at.Port
}
