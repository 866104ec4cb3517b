package authz

import (
	"regexp"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/pilotmesh/pilot/internal/api"
)

// attribute says how values of one field of a policy, or of one condition, are matched. One of principal and permission is set.
type attribute struct {
	// principal and permission return alternative matchers: one must match; empty if the value cannot be translated.
	principal  func(t *translation, value string) []*rbacv3.Principal
	permission func(t *translation, value string) []*rbacv3.Permission
	// onlyHTTP is true if connections that are not HTTP do not have the attribute.
	onlyHTTP bool
}

// attributeOf returns how a condition is matched; false if there is no such attribute.
func attributeOf(key string) (attribute, bool) {
	switch key {
	case "source.ip":
		return attribute{principal: directAddress}, true
	case "remote.ip":
		return attribute{principal: remoteAddress}, true
	case "source.namespace":
		return attribute{principal: identityIn(namespaceRegex)}, true
	case "source.serviceAccount":
		return attribute{principal: serviceAccount}, true
	case "source.trustDomain":
		return attribute{principal: identityIn(trustDomainRegex)}, true
	case "source.principal":
		return attribute{principal: peer}, true
	case "request.auth.principal":
		return attribute{principal: requestPrincipal, onlyHTTP: true}, true
	case "request.auth.audiences":
		return attribute{principal: tokenClaim("aud"), onlyHTTP: true}, true
	case "request.auth.presenter":
		return attribute{principal: tokenClaim("azp"), onlyHTTP: true}, true
	case "destination.ip":
		return attribute{permission: destinationAddress}, true
	case "destination.port":
		return attribute{permission: destinationPort}, true
	case "connection.sni":
		return attribute{permission: serverName}, true
	}
	if rest, ok := strings.CutPrefix(key, "request.headers"); ok {
		names, ok := api.Brackets(rest)
		return attribute{principal: requestHeader(strings.Join(names, "")), onlyHTTP: true}, ok
	}
	if rest, ok := strings.CutPrefix(key, "request.auth.claims"); ok {
		path, ok := api.Brackets(rest)
		return attribute{principal: tokenClaim(path...), onlyHTTP: true}, ok
	}
	if rest, ok := strings.CutPrefix(key, "experimental."); ok {
		filter, name, _ := strings.Cut(rest, "[")
		names, ok := api.Brackets("[" + name)
		return attribute{permission: filterMetadata(filter, names)}, ok
	}
	return attribute{}, false
}

func directAddress(t *translation, value string) (list []*rbacv3.Principal) {
	for _, block := range blocksOf(value, t.wide, false) {
		list = append(list, &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: block}})
	}
	return list
}

// remoteAddress matches the address of the client by the headers of the request.
func remoteAddress(t *translation, value string) (list []*rbacv3.Principal) {
	for _, block := range blocksOf(value, t.wide, true) {
		list = append(list, &rbacv3.Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: block}})
	}
	return list
}

// authenticated matches the identity in the certificate of the client.
func authenticated(m *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m}}}
}

const spiffe = "spiffe://"

// peer matches principals, which policies name without their scheme.
func peer(t *translation, value string) (list []*rbacv3.Principal) {
	for _, pattern := range expandTrustDomain(value, t.trustDomains) {
		switch {
		case pattern == "*":
			list = append(list, authenticated(regexMatcher(".+")))
		case strings.HasPrefix(pattern, "*"):
			list = append(list, authenticated(regexMatcher(spiffe+".*"+regexp.QuoteMeta(pattern[1:]))))
		default:
			list = append(list, authenticated(textMatcher(spiffe+pattern)))
		}
	}
	return list
}

// identityIn matches identities by a regular expression for the value.
func identityIn(regex func(string) string) func(*translation, string) []*rbacv3.Principal {
	return func(_ *translation, value string) []*rbacv3.Principal {
		return []*rbacv3.Principal{authenticated(regexMatcher(regex(value)))}
	}
}

func namespaceRegex(value string) string {
	return spiffe + "[^/]+/ns/" + segmentRegex(value) + "/.*"
}

func trustDomainRegex(value string) string { return spiffe + segmentRegex(value) + "/.*" }

// serviceAccount matches "namespace/account", or an account of the policy's namespace.
func serviceAccount(t *translation, value string) []*rbacv3.Principal {
	namespace, account, ok := strings.Cut(value, "/")
	if !ok {
		namespace, account = t.key.Namespace, value
	}
	return []*rbacv3.Principal{authenticated(regexMatcher(spiffe + "[^/]+/ns/" + regexp.QuoteMeta(namespace) + "/sa/" + regexp.QuoteMeta(account)))}
}

// tokenClaim matches a claim of the verified token. If it is wide, it takes numbers, true and false for the texts that policies have.
func tokenClaim(path ...string) func(*translation, string) []*rbacv3.Principal {
	return func(t *translation, value string) []*rbacv3.Principal {
		if t.wide && value == "*" {
			present := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}
			return []*rbacv3.Principal{inToken(claim(path, present))}
		}
		values := []*matcherv3.ValueMatcher{textValue(textMatcher(value))}
		if t.wide {
			values = append(values, otherValues(value)...)
		}
		var list []*rbacv3.Principal
		for _, m := range claimMatchers(path, values...) {
			list = append(list, inToken(m))
		}
		return list
	}
}

// inToken matches what the verified token says.
func inToken(m *matcherv3.MetadataMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Metadata{Metadata: m}} //nolint:staticcheck // all supported versions of Envoy know it
}

func requestHeader(name string) func(*translation, string) []*rbacv3.Principal {
	return func(t *translation, value string) []*rbacv3.Principal {
		m := headerMatcher(name, value, false)
		switch {
		case isHost(name) && t.wide:
			m = wideHost(value)
		case isHost(name):
			m = narrowHost(value, false)
		case t.wide && !strings.HasPrefix(name, ":"):
			m = wideHeader(name, value)
		}
		return []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Header{Header: m}}}
	}
}

func destinationAddress(t *translation, value string) (list []*rbacv3.Permission) {
	for _, block := range blocksOf(value, t.wide, false) {
		list = append(list, &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: block}})
	}
	return list
}

func destinationPort(_ *translation, value string) []*rbacv3.Permission {
	port, ok := portNumber(value)
	if !ok {
		return nil
	}
	return []*rbacv3.Permission{{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: port}}}
}

// serverName matches the name that the client asks for, which Envoy knows in lower case. If it is wide, a dot may follow the name.
func serverName(t *translation, value string) (list []*rbacv3.Permission) {
	names := []*matcherv3.StringMatcher{textMatcher(value)}
	if t.wide {
		names = wideNames(strings.ToLower(value))
	}
	for _, m := range names {
		list = append(list, &rbacv3.Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: m}})
	}
	return list
}

func wideNames(pattern string) []*matcherv3.StringMatcher {
	switch {
	case pattern == "*":
		return []*matcherv3.StringMatcher{regexMatcher("(?s).+")}
	case !strings.HasPrefix(pattern, "*") && strings.HasSuffix(pattern, "*"):
		return []*matcherv3.StringMatcher{textMatcher(pattern)}
	}
	pattern = strings.TrimSuffix(pattern, ".")
	return []*matcherv3.StringMatcher{textMatcher(pattern), textMatcher(pattern + ".")}
}

// filterMetadata matches what a filter of Envoy wrote. A value in brackets is for a list that has it.
func filterMetadata(filter string, path []string) func(*translation, string) []*rbacv3.Permission {
	return func(_ *translation, value string) []*rbacv3.Permission {
		inner, list := strings.CutPrefix(value, "[")
		inner, closed := strings.CutSuffix(inner, "]")
		if !list || !closed {
			inner = value
		}
		m := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: textMatcher(inner)}}
		if list && closed {
			m = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{
				MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: m},
			}}}
		}
		return []*rbacv3.Permission{{Rule: &rbacv3.Permission_Metadata{Metadata: metadataMatcher(filter, path, m)}}} //nolint:staticcheck // all supported versions of Envoy know it
	}
}

func requestHost(t *translation, value string) []*rbacv3.Permission {
	m := narrowHost(value, true)
	if t.wide {
		m = wideHost(value)
	}
	return []*rbacv3.Permission{{Rule: &rbacv3.Permission_Header{Header: m}}}
}

func requestMethod(_ *translation, value string) []*rbacv3.Permission {
	return []*rbacv3.Permission{{Rule: &rbacv3.Permission_Header{Header: headerMatcher(":method", value, false)}}}
}

func requestPath(_ *translation, value string) []*rbacv3.Permission {
	return []*rbacv3.Permission{{Rule: &rbacv3.Permission_UrlPath{UrlPath: pathMatcher(value)}}}
}
