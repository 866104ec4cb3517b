package authz

import (
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// A value of a policy is a pattern: "*" for any text that is not empty, "abc*" for a prefix, "*abc" for a suffix, and everything else
// for itself.

// textMatcher matches texts by a pattern.
func textMatcher(pattern string) *matcherv3.StringMatcher {
	switch {
	case pattern == "*":
		return regexMatcher(".+")
	case strings.HasPrefix(pattern, "*"):
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: pattern[1:]}}
	case strings.HasSuffix(pattern, "*"):
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: strings.TrimSuffix(pattern, "*")}}
	}
	return exactMatcher(pattern)
}

func exactMatcher(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func regexMatcher(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s}}}
}

// headerMatcher matches a header by a pattern.
func headerMatcher(name, pattern string, ignoreCase bool) *routev3.HeaderMatcher {
	m := &routev3.HeaderMatcher{Name: name}
	if pattern == "*" {
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		return m
	}
	text := textMatcher(pattern)
	text.IgnoreCase = ignoreCase
	m.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: text}
	return m
}

func containsMatcher(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: s}}
}

// pathMatcher matches the path of a request, without its query, by a pattern or a template.
func pathMatcher(pattern string) *matcherv3.PathMatcher {
	text := textMatcher(pattern)
	if strings.ContainsAny(pattern, "{}") {
		text = regexMatcher(templateRegex(pattern))
	}
	return &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: text}}
}

// templateRegex returns the regular expression for a path template: {*} is one segment that is not empty, and {**} is any number of
// segments. It matches whole paths.
func templateRegex(template string) string {
	var b strings.Builder
	for template != "" {
		switch {
		case strings.HasPrefix(template, "{*}"):
			b.WriteString("[^/]+")
			template = template[len("{*}"):]
		case strings.HasPrefix(template, "{**}"):
			b.WriteString(".*")
			template = template[len("{**}"):]
		default:
			end := strings.IndexByte(template[1:], '{') + 1
			if end == 0 {
				end = len(template)
			}
			b.WriteString(regexp.QuoteMeta(template[:end]))
			template = template[end:]
		}
	}
	return b.String()
}

// segmentRegex returns the regular expression for a pattern of one segment of an identity. A star matches any text in it.
func segmentRegex(pattern string) string {
	if pattern == "*" {
		return "[^/]+"
	}
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return strings.Join(parts, "[^/]*")
}

// blocksOf parses an address block; it returns none if the value is no block. A header may have an address of IPv4 in the form of IPv6
// (::ffff:192.0.2.1), which Envoy finds in no block of IPv4. With written, the address comes from a header. If wide is true, one more block
// matches the other form.
func blocksOf(value string, wide, written bool) (list []*corev3.CidrRange) {
	block, err := netip.ParsePrefix(value)
	if err != nil {
		address, err := netip.ParseAddr(value)
		if err != nil {
			return nil
		}
		block = netip.PrefixFrom(address, address.BitLen())
	}
	blocks := []netip.Prefix{block}
	const mapped = 96 // the bits before an address of IPv4 in one of IPv6
	switch a := block.Addr(); {
	case !wide:
	case a.Is4() && written:
		blocks = append(blocks, netip.PrefixFrom(netip.AddrFrom16(a.As16()), block.Bits()+mapped))
	case a.Is4In6() && block.Bits() >= mapped:
		blocks = append(blocks, netip.PrefixFrom(a.Unmap(), block.Bits()-mapped))
	}
	for _, b := range blocks {
		list = append(list, &corev3.CidrRange{AddressPrefix: b.Addr().String(), PrefixLen: envoy.Uint(uint32(b.Bits()))})
	}
	return list
}

func portNumber(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint32(n), err == nil
}

// The namespace of dynamic metadata that jwt_authn writes, and the key of the token's payload in it.
const (
	jwtMetadata     = "envoy.filters.http.jwt_authn"
	payloadMetadata = "payload"
)

// claimMatchers match a claim of the verified token: a value, or a list that has it.
func claimMatchers(path []string, values ...*matcherv3.ValueMatcher) (list []*matcherv3.MetadataMatcher) {
	for _, value := range values {
		inList := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{
			MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: value},
		}}}
		list = append(list, claim(path, value), claim(path, inList))
	}
	return list
}

func textValue(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
}

// otherValues match the values of JSON that are no texts and that a pattern may mean: a number, true, or false.
func otherValues(pattern string) []*matcherv3.ValueMatcher {
	if pattern == "true" || pattern == "false" {
		return []*matcherv3.ValueMatcher{{MatchPattern: &matcherv3.ValueMatcher_BoolMatch{BoolMatch: pattern == "true"}}}
	}
	n, err := strconv.ParseFloat(pattern, 64)
	if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
		return nil
	}
	return []*matcherv3.ValueMatcher{{MatchPattern: &matcherv3.ValueMatcher_DoubleMatch{DoubleMatch: &matcherv3.DoubleMatcher{
		MatchPattern: &matcherv3.DoubleMatcher_Exact{Exact: n},
	}}}}
}

// Claim matches a claim of the verified token.
func Claim(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return claim(path, value)
}

func claim(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return metadataMatcher(jwtMetadata, append([]string{payloadMetadata}, path...), value)
}

func metadataMatcher(filter string, path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	m := &matcherv3.MetadataMatcher{Filter: filter, Value: value}
	for _, key := range path {
		m.Path = append(m.Path, &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}})
	}
	return m
}

// Permissions and principals are built the same way: a field lists alternatives, and "not" excludes them.

func anyPermission() *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
}

func notPermission(p *rbacv3.Permission) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: p}}
}

func orPermissions(list []*rbacv3.Permission) *rbacv3.Permission {
	if len(list) == 1 {
		return list[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: list}}}
}

// andPermissions matches if all do; without any it matches everything.
func andPermissions(list []*rbacv3.Permission) *rbacv3.Permission {
	switch len(list) {
	case 0:
		return anyPermission()
	case 1:
		return list[0]
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: list}}}
}

func anyPrincipal() *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
}

func notPrincipal(p *rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: p}}
}

func orPrincipals(list []*rbacv3.Principal) *rbacv3.Principal {
	if len(list) == 1 {
		return list[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: list}}}
}

// andPrincipals matches if all do; without any it matches everybody.
func andPrincipals(list []*rbacv3.Principal) *rbacv3.Principal {
	switch len(list) {
	case 0:
		return anyPrincipal()
	case 1:
		return list[0]
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: list}}}
}

// matchEverything and matchNothing are policies.
func matchEverything() *rbacv3.Policy {
	return &rbacv3.Policy{Permissions: []*rbacv3.Permission{anyPermission()}, Principals: []*rbacv3.Principal{anyPrincipal()}}
}

func matchNothing() *rbacv3.Policy {
	return &rbacv3.Policy{
		Permissions: []*rbacv3.Permission{notPermission(anyPermission())}, Principals: []*rbacv3.Principal{notPrincipal(anyPrincipal())},
	}
}

// expandTrustDomain returns the patterns that are equivalent to a pattern for principals. The trust domain of the mesh, its aliases
// and cluster.local are equivalent.
func expandTrustDomain(pattern string, domains []string) []string {
	named, rest, ok := strings.Cut(pattern, "/")
	if !ok {
		return []string{pattern}
	}
	suffix, wildcard := strings.CutPrefix(named, "*")
	meant := named == "cluster.local" || slices.ContainsFunc(domains, func(domain string) bool {
		return domain == named || wildcard && suffix != "" && strings.HasSuffix(domain, suffix)
	})
	if !meant {
		return []string{pattern}
	}
	var all []string
	if wildcard {
		all = append(all, pattern)
	}
	for _, domain := range domains {
		if p := domain + "/" + rest; !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}
