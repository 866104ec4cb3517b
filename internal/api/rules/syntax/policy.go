package syntax

import (
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Account checks "account" or "namespace/account".
func Account(s string) string {
	namespace, account, both := strings.Cut(s, "/")
	if !both {
		namespace, account = "-", s
	}
	switch {
	case len(s) > 320:
		return fmt.Sprintf("has %d characters, the limit is 320", len(s))
	case strings.Contains(account, "/") || namespace == "" || account == "":
		return fmt.Sprintf("%s is neither an account nor namespace/account", document.Quote(s))
	case strings.Contains(s, "*"):
		return fmt.Sprintf("%s: service accounts are named exactly; use principals for wildcards", document.Quote(s))
	}
	return ""
}

// TrustDomains checks a pattern for trust domains.
func TrustDomains(s string) string {
	inner := strings.TrimSuffix(s, "*")
	if inner == s {
		inner = strings.TrimPrefix(s, "*")
	}
	if strings.Contains(inner, "*") {
		return fmt.Sprintf("%s: a wildcard is allowed at the beginning or at the end, once", document.Quote(s))
	}
	if strings.Contains(inner, "/") {
		return fmt.Sprintf("%s: a trust domain has no slash", document.Quote(s))
	}
	return ""
}

// Attributes returns the attributes of conditions.
func Attributes() []string {
	return []string{
		"request.headers[NAME]", "source.ip", "remote.ip", "source.namespace", "source.serviceAccount", "source.principal", "source.trustDomain",
		"request.auth.principal", "request.auth.audiences", "request.auth.presenter", "request.auth.claims[NAME]", "destination.ip", "destination.port",
		"connection.sni", "experimental.envoy.filters.NAME[KEY]",
	}
}

// Attribute returns the check of the values of an attribute; false if there is no such attribute.
func Attribute(key string) (check func(string) string, known bool) {
	switch key {
	case "source.ip", "remote.ip", "destination.ip":
		return Subnet, true
	case "destination.port":
		return PortText, true
	case "source.serviceAccount":
		return Account, true
	case "source.trustDomain":
		return TrustDomains, true
	case "source.namespace", "source.principal", "request.auth.principal", "request.auth.audiences", "request.auth.presenter", "connection.sni":
		return nil, true
	}
	if rest, ok := strings.CutPrefix(key, "request.headers"); ok {
		names, ok := Brackets(rest)
		return nil, ok && len(names) == 1 && !strings.ContainsAny(names[0], "\x00\r\n")
	}
	if rest, ok := strings.CutPrefix(key, "request.auth.claims"); ok {
		_, ok := Brackets(rest)
		return nil, ok
	}
	if strings.HasPrefix(key, "experimental.envoy.filters.") {
		at := strings.IndexByte(key, '[')
		if at < 0 {
			return nil, false
		}
		names, ok := Brackets(key[at:])
		return nil, ok && len(names) == 1
	}
	return nil, false
}

// Brackets splits "[a][b]" into a and b. ok is false if the text has another form, or a name is empty.
func Brackets(s string) (names []string, ok bool) {
	for s != "" {
		if s[0] != '[' {
			return nil, false
		}
		end := strings.Index(s, "]")
		if end <= 1 {
			return nil, false
		}
		names, s = append(names, s[1:end]), s[end+1:]
	}
	return names, len(names) > 0
}

// maxTemplate is the largest length of a template, which Envoy compiles to a regular expression.
const maxTemplate = 16384

// PathTemplate checks a path of an operation: an exact path, one with * at its beginning or end, or a template with {*} for one
// segment and {**} for any number of them.
func PathTemplate(path string) string {
	if !strings.ContainsAny(path, "{}") {
		return ""
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Sprintf("%s: a template begins with a slash", document.Quote(path))
	}
	if len(path) > maxTemplate {
		return fmt.Sprintf("Envoy takes at most %d bytes, and this template has %d; shorten it", maxTemplate, len(path))
	}
	many := false
	for segment := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		switch {
		case segment == "{*}" || segment == "{**}":
			if many {
				return fmt.Sprintf("%s: no {*} or {**} may follow {**}", document.Quote(path))
			}
			many = segment == "{**}"
		case strings.ContainsAny(segment, "{}"):
			return fmt.Sprintf("%s: in a template, {*} and {**} are whole segments, and there are no other braces", document.Quote(path))
		case segment == "":
			return fmt.Sprintf("%s: a segment of a template must not be empty", document.Quote(path))
		case strings.Contains(segment, "*"):
			return fmt.Sprintf("%s mixes a template with the wildcard *; write {*} or {**}", document.Quote(path))
		case strings.ContainsFunc(segment, func(r rune) bool { return !strings.ContainsRune(segmentChars, r) }):
			return fmt.Sprintf("%s: the segment %s has characters that no path has", document.Quote(path), document.Quote(segment))
		}
	}
	return ""
}

// segmentChars are the characters of the segments of a path.
const segmentChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%!$&'()+,;:@="
