package listener

import (
	"cmp"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/pilotmesh/pilot/internal/view/transport"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// dubboProxy is the filter that leads calls of Dubbo by their interface. Services without a group or version are last: Envoy looks at the
// attachments of a call for these, and writes a line to its log if they do not match.
func dubboProxy(name string, calls []transport.DubboCall) *listenerv3.Filter {
	routes := make([]envoy.DubboRoute, 0, len(calls))
	for _, c := range calls {
		route := envoy.DubboRoute{Interface: c.Interface, Group: c.Group, Version: c.Version}
		without := withoutGroupAndVersion(c)
		for _, rule := range c.Rules {
			r := dubboRule(rule)
			r.Attachments = append(r.Attachments, without...)
			route.Rules = append(route.Rules, r)
		}
		routes = append(routes, route)
	}
	slices.SortStableFunc(routes, func(a, b envoy.DubboRoute) int { return cmp.Compare(unset(a), unset(b)) })
	return envoy.DubboProxy("outbound_"+name, routes)
}

// unset is how many of group and version a service does not have.
func unset(r envoy.DubboRoute) (n int) {
	for _, text := range []string{r.Group, r.Version} {
		if text == "" {
			n++
		}
	}
	return n
}

// withoutGroupAndVersion are the conditions on a call of a service that has no group or version: Envoy would send calls with any to it. A consumer
// without a version sends none, or 0.0.0.
func withoutGroupAndVersion(c transport.DubboCall) (list []*routev3.HeaderMatcher) {
	for _, part := range []struct {
		value, attachment string
		none              transport.Text
	}{
		{c.Group, "group", transport.Text{Matching: transport.Exact}},
		{c.Version, "version", transport.Text{Matching: transport.Regex, Value: `(0\.0\.0)?`}},
	} {
		if part.value == "" {
			list = append(list, &routev3.HeaderMatcher{
				Name: part.attachment, TreatMissingHeaderAsEmpty: true, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: textMatcher(part.none)},
			})
		}
	}
	return list
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
