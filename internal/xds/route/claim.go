package route

import (
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/xds/authz"
)

// claimKey begins the name of a header that means a claim of the verified token: @request.auth.claims.a.b, or
// @request.auth.claims[a][b].
const claimKey = "@request.auth.claims"

// claimMatcher matches a claim of the verified token: a value, or a list that has it. ok is false if the name names a header.
func claimMatcher(name string, m *networking.StringMatch) (_ *matcherv3.MetadataMatcher, ok bool) {
	if len(name) < len(claimKey) || !strings.EqualFold(name[:len(claimKey)], claimKey) {
		return nil, false
	}
	rest := name[len(claimKey):]
	path, brackets := api.Brackets(rest)
	if !brackets {
		path = strings.Split(strings.TrimPrefix(rest, "."), ".")
	}
	text := stringMatch(m)
	if text == nil {
		return authz.Claim(path, &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}), true
	}
	value := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: text}}
	inList := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{
		MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: value},
	}}}
	return authz.Claim(path, &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{
		OrMatch: &matcherv3.OrMatcher{ValueMatchers: []*matcherv3.ValueMatcher{value, inList}},
	}}), true
}
