package route

import (
	"maps"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// requestMatch is the match of a request. nil matches every request.
func requestMatch(m *networking.HTTPMatchRequest) *routev3.RouteMatch {
	out := envoy.MatchAll()
	if m == nil {
		return out
	}
	switch u := m.GetUri().GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: u.Exact}
	case *networking.StringMatch_Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: u.Prefix}
	case *networking.StringMatch_Regex:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: u.Regex}}
	}
	if m.IgnoreUriCase {
		out.CaseSensitive = envoy.Bool(false)
	}
	for _, special := range []struct {
		name  string
		match *networking.StringMatch
	}{{":scheme", m.Scheme}, {":method", m.Method}, {":authority", m.Authority}} {
		if special.match != nil {
			out.Headers = append(out.Headers, headerMatcher(special.name, special.match))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if claim, ok := claimMatcher(name, m.Headers[name]); ok {
			out.DynamicMetadata = append(out.DynamicMetadata, claim)
			continue
		}
		out.Headers = append(out.Headers, headerMatcher(name, m.Headers[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(m.WithoutHeaders)) {
		if claim, ok := claimMatcher(name, m.WithoutHeaders[name]); ok {
			claim.Invert = true
			out.DynamicMetadata = append(out.DynamicMetadata, claim)
			continue
		}
		h := headerMatcher(name, m.WithoutHeaders[name])
		h.InvertMatch = true
		if _, present := h.HeaderMatchSpecifier.(*routev3.HeaderMatcher_PresentMatch); !present {
			h.TreatMissingHeaderAsEmpty = true
		}
		out.Headers = append(out.Headers, h)
	}
	for _, name := range slices.Sorted(maps.Keys(m.QueryParams)) {
		out.QueryParameters = append(out.QueryParameters, parameterMatcher(name, m.QueryParams[name]))
	}
	return out
}

// matchesAll reports whether a match matches every request.
func matchesAll(m *routev3.RouteMatch) bool {
	return (m.GetPrefix() == "/" || m.GetSafeRegex().GetRegex() == ".*") && len(m.Headers) == 0 && len(m.QueryParameters) == 0 && len(m.DynamicMetadata) == 0
}

func headerMatcher(name string, m *networking.StringMatch) *routev3.HeaderMatcher {
	h := &routev3.HeaderMatcher{Name: name}
	if s := stringMatch(m); s != nil {
		h.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: s}
	} else {
		h.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
	}
	return h
}

func parameterMatcher(name string, m *networking.StringMatch) *routev3.QueryParameterMatcher {
	p := &routev3.QueryParameterMatcher{Name: name}
	if s := stringMatch(m); s != nil {
		p.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: s}
	} else {
		p.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
	}
	return p
}

// stringMatch is nil if any value matches, so that only presence is required.
func stringMatch(m *networking.StringMatch) *matcherv3.StringMatcher {
	switch s := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s.Exact}}
	case *networking.StringMatch_Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s.Prefix}}
	case *networking.StringMatch_Regex:
		if s.Regex != "*" {
			return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
				SafeRegex: &matcherv3.RegexMatcher{Regex: s.Regex},
			}}
		}
	}
	return nil
}
