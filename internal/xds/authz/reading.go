package authz

import (
	"regexp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Envoy does not always compare the text that the application reads: it keeps the blanks around a value that came over HTTP/2, which
// HTTP/1 drops on the way to the application; it joins several lines of some headers to one; and of a host it knows only the text. So
// there are two matchers for such a text. The narrow one matches it as it stands. The wide one matches, too, what an application may
// read in it. Values use the wide one where to match more restricts access, and the narrow one everywhere else.

// blanks are what applications may cut off around a value. Regular expressions of Envoy see bytes, so the last two are the blanks of
// ISO 8859-1.
const blanks = `[\s\x85\xa0]*`

// longestReading is the length of a pattern up to which its readings are one regular expression. Envoy refuses one that is too large. For a
// longer pattern the wide matcher matches whatever contains it.
const longestReading = 4096

// wideHeader matches a header if an application may read a value in it that the pattern matches.
func wideHeader(name, pattern string) *routev3.HeaderMatcher {
	pattern = strings.Trim(pattern, " \t")
	if pattern == "*" {
		return headerMatcher(name, pattern, false)
	}
	suffix, isSuffix := strings.CutPrefix(pattern, "*")
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	before, after := "", ""
	if s := separator(name); s != "" {
		before, after = "(.*"+s+")?", "("+s+".*)?"
	}
	switch {
	case isSuffix:
		return reading(name, suffix, ".*"+regexp.QuoteMeta(suffix)+blanks+after)
	case isPrefix:
		return reading(name, prefix, before+blanks+regexp.QuoteMeta(prefix)+".*")
	}
	return reading(name, pattern, before+blanks+regexp.QuoteMeta(pattern)+blanks+after)
}

// separator is the text between the values of a header whose lines Envoy joins; empty for a header whose lines it compares one by one.
// Cookies are joined if they come over HTTP/2.
func separator(name string) string {
	name = strings.ToLower(name)
	if name == "cookie" {
		return ";"
	}
	if slices.Contains(joined(), name) || strings.HasPrefix(name, "x-envoy-") {
		return ","
	}
	return ""
}

// joined are the headers whose lines Envoy joins, besides its own. A test compares the list with a real Envoy.
func joined() []string {
	return []string{
		"accept", "accept-encoding", "access-control-request-headers", "access-control-request-method", "access-control-request-private-network",
		"authorization", "cache-control", "cdn-loop", "connection", "content-encoding", "content-length", "content-type", "expect",
		"grpc-accept-encoding", "grpc-timeout", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive",
		"origin", "pragma", "proxy-connection", "referer", "te", "transfer-encoding", "upgrade", "user-agent", "via", "x-client-trace-id",
		"x-forwarded-client-cert", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-request-id",
	}
}

// authority is the name under which Envoy knows the host of a request.
const authority = ":authority"

// isHost reports whether a header is the host of a request.
func isHost(name string) bool { return name == authority || strings.EqualFold(name, "host") }

// wideHost matches a request if an application may find a host in it that the pattern matches: in any case, with a dot at its end, with
// the usual port or none, behind user information, or as one of several hosts, which Envoy joins with commas.
func wideHost(pattern string) *routev3.HeaderMatcher {
	if pattern == "*" {
		return headerMatcher(authority, pattern, true)
	}
	const first, last = `(?i)(.*[,@]\s*)?`, `(\s*,.*)?`
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return reading(authority, suffix, "(?i).*"+hostRegex(suffix)+last)
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		if name, port, ok := cutPort(prefix); ok {
			return reading(authority, prefix, first+nameRegex(name)+":0*"+port+".*")
		}
		return reading(authority, prefix, first+regexp.QuoteMeta(prefix)+".*")
	}
	return reading(authority, pattern, first+hostRegex(pattern)+last)
}

// hostRegex matches a host, or what a host ends with.
func hostRegex(host string) string {
	name, port, _ := cutPort(host)
	switch port {
	case "":
		return nameRegex(name) + "(:0*(80|443)?)?"
	case "80", "443":
		return nameRegex(name) + "(:0*(" + port + ")?)?"
	}
	return nameRegex(name) + ":0*" + port
}

func nameRegex(name string) string { return regexp.QuoteMeta(strings.TrimSuffix(name, ".")) + `\.?` }

// cutPort splits a host before its port. ok is false if it has no colon before a port, which may be empty.
func cutPort(host string) (name, port string, ok bool) {
	at := strings.LastIndexByte(host, ':')
	if at < 0 || strings.Trim(host[at+1:], "0123456789") != "" {
		return host, "", false
	}
	return host[:at], strings.TrimLeft(host[at+1:], "0"), true
}

// narrowHost matches a request by its host, if it has one only, and no user information.
func narrowHost(pattern string, ignoreCase bool) *routev3.HeaderMatcher {
	m := headerMatcher(authority, pattern, ignoreCase)
	const one = "[^,@]*"
	var regex string
	switch p := m.GetStringMatch().GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Suffix:
		regex = one + regexp.QuoteMeta(p.Suffix)
	case *matcherv3.StringMatcher_Prefix:
		regex = regexp.QuoteMeta(p.Prefix) + one
	default:
		return m
	}
	if ignoreCase {
		regex = "(?i)" + regex
	}
	m.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: regexMatcher(regex)}
	return m
}

// reading matches a header by the regular expression for the readings of a text.
func reading(name, text, regex string) *routev3.HeaderMatcher {
	m := regexMatcher(regex)
	if len(text) > longestReading {
		m = containsMatcher(text)
		m.IgnoreCase = name == authority
	}
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: m}}
}
