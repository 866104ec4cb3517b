package listener

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/pilotmesh/pilot/internal/view/transport"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// dubboProxy is the filter that leads calls of Dubbo by their interface.
func dubboProxy(name string, calls []transport.DubboCall) *listenerv3.Filter {
	routes := make([]envoy.DubboRoute, 0, len(calls))
	for _, c := range calls {
		route := envoy.DubboRoute{Interface: c.Interface, Group: c.Group, Version: c.Version}
		for _, rule := range c.Rules {
			route.Rules = append(route.Rules, dubboRule(rule))
		}
		routes = append(routes, route)
	}
	return envoy.DubboProxy("outbound_"+name, routes)
}

// dubboRule is a rule for calls of an interface.
func dubboRule(r transport.CallRule) (out envoy.DubboRule) {
	out.Method = textMatcher(r.Method)
	for _, a := range r.Attachments {
		h := &routev3.HeaderMatcher{Name: a.Name, InvertMatch: a.Not}
		if m := textMatcher(a.Text); m != nil {
			h.HeaderMatchSpecifier, h.TreatMissingHeaderAsEmpty = &routev3.HeaderMatcher_StringMatch{StringMatch: m}, a.Not
		} else {
			h.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		}
		out.Attachments = append(out.Attachments, h)
	}
	for _, d := range r.Destinations {
		out.Clusters = append(out.Clusters, envoy.Weighted{Cluster: clusterOf(d), Weight: d.Weight})
	}
	return out
}

// textMatcher is nil if any text matches.
func textMatcher(t transport.Text) *matcherv3.StringMatcher {
	switch t.Matching {
	case transport.Exact:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: t.Value}}
	case transport.Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: t.Value}}
	case transport.Regex:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: t.Value}}}
	}
	return nil
}
