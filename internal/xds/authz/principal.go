package authz

import (
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// requestPrincipal matches the text "issuer/subject" of the verified token by a pattern. Both parts may contain slashes. The narrow
// matcher splits the pattern at its last slash: otherwise another issuer could make up a subject that completes the text.
func requestPrincipal(t *translation, value string) []*rbacv3.Principal {
	if t.wide {
		return anyRequestPrincipal(value)
	}
	present := regexMatcher(".+")
	isSuffix := strings.HasPrefix(value, "*")
	prefix, isPrefix := strings.CutSuffix(value, "*")
	at := strings.LastIndexByte(value, '/')
	switch {
	case value == "*":
		return []*rbacv3.Principal{issuerAndSubject(present, present)}
	case isSuffix && at < 0: // the end of a subject
		return []*rbacv3.Principal{issuerAndSubject(present, textMatcher(value))}
	case isPrefix && (at < 0 || strings.HasSuffix(prefix, "://")): // the beginning of an issuer
		return []*rbacv3.Principal{issuerAndSubject(textMatcher(value), present)}
	case at < 0:
		return nil
	}
	return []*rbacv3.Principal{issuerAndSubject(splitAt(value, at))}
}

// anyRequestPrincipal is the wide matcher: it splits the pattern at each of its slashes. A token need not have a subject if the pattern
// leaves it open.
func anyRequestPrincipal(value string) (list []*rbacv3.Principal) {
	switch {
	case value == "*":
		return []*rbacv3.Principal{issuerAndSubject(regexMatcher(".+"), nil)}
	case strings.HasPrefix(value, "*"):
		list = append(list, issuerAndSubject(nil, textMatcher(value)))
	case strings.HasSuffix(value, "*"):
		list = append(list, issuerAndSubject(textMatcher(value), nil))
	}
	for at := range value {
		if value[at] != '/' {
			continue
		}
		issuer, subject := splitAt(value, at)
		if value[at+1:] == "*" {
			subject = nil
		}
		if value[:at] == "*" {
			issuer = nil
		}
		if issuer != nil || subject != nil {
			list = append(list, issuerAndSubject(issuer, subject))
		}
	}
	return list
}

// splitAt returns the matchers for both sides of a slash of a pattern. The star at its beginning is one for the issuer, and that at its
// end one for the subject.
func splitAt(value string, at int) (issuer, subject *matcherv3.StringMatcher) {
	issuer, subject = exactMatcher(value[:at]), exactMatcher(value[at+1:])
	switch {
	case strings.HasPrefix(value, "*"):
		issuer = textMatcher(value[:at])
	case strings.HasSuffix(value, "*"):
		subject = textMatcher(value[at+1:])
	}
	return issuer, subject
}

// issuerAndSubject matches tokens by both; nil matches all.
func issuerAndSubject(issuer, subject *matcherv3.StringMatcher) *rbacv3.Principal {
	var list []*rbacv3.Principal
	if issuer != nil {
		list = append(list, inToken(claim([]string{"iss"}, textValue(issuer))))
	}
	if subject != nil {
		list = append(list, inToken(claim([]string{"sub"}, textValue(subject))))
	}
	return andPrincipals(list)
}
