package rules

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// The functions of this file check one text. They return why it is invalid, or "" if it is valid.

const (
	maxLabel     = 63  // of a DNS label, a label's name, a label's value
	maxSubdomain = 253 // of an object's name
	maxHost      = 255 // of a host name
)

// isLabel reports whether s is a DNS label (RFC 1123), with upper case if that is allowed.
func isLabel(s string, upper bool) bool {
	if s == "" || len(s) > maxLabel {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case 'A' <= c && c <= 'Z' && upper:
		case c == '-' && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// Label checks a DNS label (RFC 1123), such as the name of a namespace.
func Label(s string) string {
	if isLabel(s, false) {
		return ""
	}
	return fmt.Sprintf("%s is not a DNS label: at most %d lower case letters, digits and inner hyphens", document.Quote(s), maxLabel)
}

// checkName checks a label that may have upper case, because Kubernetes does not see it.
func checkName(s string) string {
	if isLabel(s, true) {
		return ""
	}
	return fmt.Sprintf("%s is not a name: at most %d letters, digits and inner hyphens", document.Quote(s), maxLabel)
}

// Subdomain checks the name of an object.
func Subdomain(s string) string {
	ok := len(s) <= maxSubdomain
	for part := range strings.SplitSeq(s, ".") {
		ok = ok && isLabel(part, false)
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%s is not an object name: at most %d lower case letters, digits, hyphens and dots, "+
		"with a letter or digit around each dot and at both ends", document.Quote(s), maxSubdomain)
}

// checkFQDN checks a host name, short or full, without wildcard.
func checkFQDN(s string) string {
	host := strings.TrimSuffix(s, ".")
	if host == "" {
		return "a host name is needed"
	}
	if len(s) > maxHost {
		return fmt.Sprintf("a host name has at most %d characters, this one has %d", maxHost, len(s))
	}
	for part := range strings.SplitSeq(host, ".") {
		if !isLabel(part, true) {
			return fmt.Sprintf("%s is not a host name: its part %s is not a DNS label", document.Quote(s), document.Quote(part))
		}
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; isDigits(last) {
		return fmt.Sprintf("%s is not a host name: the last part must not be a number", document.Quote(s))
	}
	return ""
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// checkWildcard checks a host name that may begin with a wildcard: "*", "*.example.com", "*-a.example.com".
func checkWildcard(s string) string {
	if s == "*" || s == "" || s[0] != '*' {
		if s == "*" {
			return ""
		}
		if strings.Contains(s, "*") {
			return fmt.Sprintf("%s: a wildcard stands for the first part of a host name only, like *.example.com", document.Quote(s))
		}
		return checkFQDN(s)
	}
	rest := strings.TrimPrefix(s[1:], ".")
	if len(s) > 1 && s[1] == '-' {
		rest = s[2:]
	}
	return checkFQDN(rest)
}

func isIP(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// checkSubnet checks an address or an address block.
func checkSubnet(s string) string {
	if !strings.Contains(s, "/") {
		if isIP(s) {
			return ""
		}
		return fmt.Sprintf("%s is not an IP address or an address block like 10.0.0.0/8", document.Quote(s))
	}
	if _, err := netip.ParsePrefix(s); err != nil {
		return fmt.Sprintf("%s is not an address block like 10.0.0.0/8", document.Quote(s))
	}
	return ""
}

// checkUnix checks "unix://" addresses, which s must be.
func checkUnix(s string) string {
	file := strings.TrimPrefix(s, "unix://")
	switch {
	case !strings.HasPrefix(file, "/") && !strings.HasPrefix(file, "@"):
		return fmt.Sprintf("%s: a socket's path must be absolute (unix:///run/app.sock) or abstract (unix://@app)", document.Quote(s))
	case strings.HasSuffix(file, "/"):
		return fmt.Sprintf("%s names a directory, not a socket", document.Quote(s))
	}
	return ""
}

func isUnix(s string) bool { return strings.HasPrefix(s, "unix://") }

// isQualified reports whether s is a qualified name of Kubernetes without a prefix: letters, digits and inner "-_.".
func isQualified(s string) bool {
	if s == "" || len(s) > maxLabel {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '-' || c == '_' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

func checkLabelKey(key string) string {
	name := key
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		if Subdomain(prefix) != "" {
			return fmt.Sprintf("%s: the part before the slash must be a domain", document.Quote(key))
		}
		name = rest
	}
	if !isQualified(name) {
		return fmt.Sprintf("%s is not a key: at most %d letters, digits and inner \"-\", \"_\", \".\"", document.Quote(key), maxLabel)
	}
	return ""
}

func checkLabelValue(text string) string {
	if text == "" || isQualified(text) {
		return ""
	}
	return fmt.Sprintf("%s is not a label's value: at most %d letters, digits and inner \"-\", \"_\", \".\"", document.Quote(text), maxLabel)
}

// ObjectLabel checks a label.
func ObjectLabel(key, text string) string {
	if reason := checkLabelKey(key); reason != "" {
		return reason
	}
	return checkLabelValue(text)
}

// Annotation checks the key of an annotation.
func Annotation(key string) string {
	if reason := checkLabelKey(strings.ToLower(key)); reason != "" {
		return reason
	}
	return ""
}

func checkPort(n uint32) string {
	if n < 1 || n > 65535 {
		return fmt.Sprintf("a port is a number from 1 to 65535, not %d", n)
	}
	return ""
}

// checkHeaderName checks the name of a header: a token (RFC 9110).
func checkHeaderName(s string) string {
	if s == "" {
		return "a header needs a name"
	}
	for i := range len(s) {
		if !httpguts.IsTokenRune(rune(s[i])) {
			return fmt.Sprintf("%s is not a header name: %q has no place in it", document.Quote(s), s[i])
		}
	}
	return ""
}

// checkHeaderValue checks a header's new value: no control characters, and of Envoy's formats (%NAME(argument):12%)
// whole ones only; %% is a percent sign.
func checkHeaderValue(s string) string {
	for i := range len(s) {
		if !httpguts.ValidHeaderFieldValue(s[i : i+1]) {
			return fmt.Sprintf("the control character %q has no place in a header", s[i])
		}
	}
	return checkFormat(s)
}

// formatLen returns the length of the format s begins with, 0 if it is none.
func formatLen(s string) int {
	if strings.HasPrefix(s, "%%") {
		return 2
	}
	i := 1
	for i < len(s) && (s[i] == '_' || 'A' <= s[i] && s[i] <= 'Z' || '0' <= s[i] && s[i] <= '9') {
		i++
	}
	if i == 1 {
		return 0
	}
	if i < len(s) && s[i] == '(' {
		// the argument may hold anything, also ")" and "%": the first ")" that ends a format ends it
		for j := i; j < len(s); j++ {
			if s[j] == ')' {
				if n := formatEnd(s, j+1); n > 0 {
					return n
				}
			}
		}
		return 0
	}
	return formatEnd(s, i)
}

// formatEnd returns the index after [:length]% at i, 0 if that is not there.
func formatEnd(s string, i int) int {
	if i < len(s) && s[i] == ':' {
		i++
		for i < len(s) && '0' <= s[i] && s[i] <= '9' {
			i++
		}
	}
	if i < len(s) && s[i] == '%' {
		return i + 1
	}
	return 0
}

// checkHostPort checks "host:port".
func checkHostPort(s string) string {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return fmt.Sprintf("%s needs a port, like host:15012", document.Quote(s))
	}
	host, port := s[:i], s[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Sprintf("%s: the port must be a number from 1 to 65535", document.Quote(s))
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") && isIP(host[1:len(host)-1]) || isIP(host) {
		return ""
	}
	return checkFQDN(host)
}
