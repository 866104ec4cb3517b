// Package syntax validates single texts: names, addresses, regular expressions, formats, key sets and expressions. A check returns
// why a text is invalid, or "" if it is valid.
//
// The package is pure: it has no goroutines, reads no files and no clock.
package syntax

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// The functions of this file check one text. They return why it is invalid, or "" if it is valid.

// The largest lengths of names, in bytes.
const (
	MaxLabel     = 63  // of a DNS label, a label's name, a label's value
	maxSubdomain = 253 // of an object's name
	maxHost      = 255 // of a host name
)

// IsLabel reports whether s is a DNS label (RFC 1123), with upper case if that is allowed.
func IsLabel(s string, upper bool) bool {
	if s == "" || len(s) > MaxLabel {
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

// isPart reports whether s is a part of the name of an object: as a DNS label, but of any length.
func isPart(s string) bool {
	for len(s) > MaxLabel {
		if !IsLabel("a"+s[:MaxLabel-2]+"a", false) {
			return false
		}
		s = "a" + s[MaxLabel-2:]
	}
	return IsLabel(s, false)
}

// Label checks a DNS label (RFC 1123), such as the name of a namespace.
func Label(s string) string {
	if IsLabel(s, false) {
		return ""
	}
	return fmt.Sprintf("%s is not a DNS label: at most %d lower case letters, digits and inner hyphens", document.Quote(s), MaxLabel)
}

// Name checks a label that may have upper case, because Kubernetes does not see it.
func Name(s string) string {
	if IsLabel(s, true) {
		return ""
	}
	return fmt.Sprintf("%s is not a name: at most %d letters, digits and inner hyphens", document.Quote(s), MaxLabel)
}

// Subdomain checks the name of an object.
func Subdomain(s string) string {
	ok := len(s) <= maxSubdomain
	for part := range strings.SplitSeq(s, ".") {
		ok = ok && isPart(part)
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%s is not an object name: at most %d lower case letters, digits, hyphens and dots, "+
		"with a letter or digit around each dot and at both ends", document.Quote(s), maxSubdomain)
}

// FQDN checks a host name, short or full, without wildcard.
func FQDN(s string) string {
	host := strings.TrimSuffix(s, ".")
	if host == "" {
		return "a host name is needed"
	}
	if len(s) > maxHost {
		return fmt.Sprintf("a host name has at most %d characters, this one has %d", maxHost, len(s))
	}
	for part := range strings.SplitSeq(host, ".") {
		if !IsLabel(part, true) {
			return fmt.Sprintf("%s is not a host name: its part %s is not a DNS label", document.Quote(s), document.Quote(part))
		}
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; isDigits(last) {
		return fmt.Sprintf("%s is not a host name: the last part must not be a number", document.Quote(s))
	}
	return ""
}

// isDigits reports whether s is a number.
func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Wildcard checks a host name that may begin with a wildcard: "*", "*.example.com", "*-a.example.com". A number is a name if it is
// the only part, as in API servers with the rules of Istio.
func Wildcard(s string) string {
	rest, wild := strings.CutPrefix(s, "*")
	switch {
	case s == "*":
		return ""
	case strings.Contains(rest, "*"):
		return fmt.Sprintf("%s: a wildcard replaces the first part of a host name only, like *.example.com", document.Quote(s))
	case wild && strings.HasPrefix(rest, "."):
		return FQDN(rest[1:])
	case wild:
		rest = strings.TrimPrefix(rest, "-")
	}
	if isDigits(rest) && IsLabel(rest, true) {
		return ""
	}
	return FQDN(rest)
}

// WholeWildcard checks a host name whose first part may be a wildcard as a whole: "*", "*.example.com".
func WholeWildcard(s string) string {
	if rest, wild := strings.CutPrefix(s, "*"); wild && rest != "" && rest[0] != '.' {
		return fmt.Sprintf("%s: here a wildcard replaces a whole part of a host name, like *.example.com", document.Quote(s))
	}
	return Wildcard(s)
}

// IsIP reports whether s is an IP address without a zone.
func IsIP(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// Listenable refuses addresses at which Envoy cannot listen: IPv4 addresses in the form of IPv6, because its IPv6 sockets take no IPv4
// addresses, and link-local addresses of IPv6, which need the name of an interface.
func Listenable(s string) string {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
	case a.Is4In6():
		return fmt.Sprintf("Envoy cannot listen at %s, an IPv4 address in the form of IPv6; write %s", document.Quote(s), a.Unmap())
	case a.Is6() && a.IsLinkLocalUnicast():
		return fmt.Sprintf("Envoy cannot listen at %s, which needs an interface; write another address of the workload", document.Quote(s))
	}
	return ""
}

// Subnet checks an address or an address block.
func Subnet(s string) string {
	if !strings.Contains(s, "/") {
		if IsIP(s) {
			return ""
		}
		return fmt.Sprintf("%s is not an IP address or an address block like 10.0.0.0/8", document.Quote(s))
	}
	if _, err := netip.ParsePrefix(s); err != nil {
		return fmt.Sprintf("%s is not an address block like 10.0.0.0/8", document.Quote(s))
	}
	return ""
}

// maxSocketPath is the largest length of the path of a socket on Linux, in bytes.
const maxSocketPath = 107

// Unix checks "unix://" addresses, which s must be.
func Unix(s string) string {
	file := strings.TrimPrefix(s, "unix://")
	switch {
	case !strings.HasPrefix(file, "/") && !strings.HasPrefix(file, "@"):
		return fmt.Sprintf("%s: a socket's path must be absolute (unix:///run/app.sock) or abstract (unix://@app)", document.Quote(s))
	case strings.HasSuffix(file, "/"):
		return fmt.Sprintf("%s names a directory, not a socket", document.Quote(s))
	case len(file) > maxSocketPath:
		return fmt.Sprintf("%s has %d bytes after unix://, the limit of the system is %d; shorten the path", document.Quote(s), len(file), maxSocketPath)
	}
	return ""
}

// IsUnix reports whether s is the address of a unix:// socket.
func IsUnix(s string) bool { return strings.HasPrefix(s, "unix://") }

// isQualified reports whether s is a qualified name of Kubernetes without a prefix: letters, digits and inner "-_.".
func isQualified(s string) bool {
	if s == "" || len(s) > MaxLabel {
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

// LabelKey checks the key of a label.
func LabelKey(key string) string {
	name := key
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		if Subdomain(prefix) != "" {
			return fmt.Sprintf("%s: the part before the slash must be a domain", document.Quote(key))
		}
		name = rest
	}
	if !isQualified(name) {
		return fmt.Sprintf("%s is not a key: at most %d letters, digits and inner \"-\", \"_\", \".\"", document.Quote(key), MaxLabel)
	}
	return ""
}

// LabelValue checks the value of a label.
func LabelValue(text string) string {
	if text == "" || isQualified(text) {
		return ""
	}
	return fmt.Sprintf("%s is not a label's value: at most %d letters, digits and inner \"-\", \"_\", \".\"", document.Quote(text), MaxLabel)
}

// WorkloadLabel checks a label of a workload in a spec. The domain of its key may have upper case.
func WorkloadLabel(key, text string) string {
	if reason := LabelKey(strings.ToLower(key)); reason != "" {
		return reason
	}
	return LabelValue(text)
}

// ObjectLabel checks a label.
func ObjectLabel(key, text string) string {
	if reason := LabelKey(key); reason != "" {
		return reason
	}
	return LabelValue(text)
}

// Annotation checks the key of an annotation.
func Annotation(key string) string {
	if reason := LabelKey(strings.ToLower(key)); reason != "" {
		return reason
	}
	return ""
}

// Port checks the number of a port.
func Port(n uint32) string {
	if n < 1 || n > 65535 {
		return fmt.Sprintf("a port is a number from 1 to 65535, not %d", n)
	}
	return ""
}

// PortText checks the number of a port that is written as a text.
func PortText(s string) string {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return fmt.Sprintf("%s is not a port number", document.Quote(s))
	}
	return Port(uint32(n))
}

// HeaderName checks the name of a header: a token (RFC 9110).
func HeaderName(s string) string {
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

// maxHeaderValue is the largest length of a header's value that Envoy takes in its configuration, in bytes.
const maxHeaderValue = 16384

// HeaderValue checks a header's new value: no control characters, and of Envoy's formats (%NAME(argument):12%)
// whole ones only; %% is a percent sign. Envoy takes no value that is longer than maxHeaderValue.
func HeaderValue(s string) string {
	if len(s) > maxHeaderValue {
		return fmt.Sprintf("Envoy takes at most %d bytes, and this value has %d; shorten it", maxHeaderValue, len(s))
	}
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

// HostPort checks "host:port".
func HostPort(s string) string {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return fmt.Sprintf("%s needs a port, like host:15012", document.Quote(s))
	}
	host, port := s[:i], s[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Sprintf("%s: the port must be a number from 1 to 65535", document.Quote(s))
	}
	switch {
	case strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") && IsIP(host[1:len(host)-1]):
		return ""
	case IsIP(host) && strings.Contains(host, ":"):
		return fmt.Sprintf("%s: write an IPv6 address in brackets, like [%s]:%s", document.Quote(s), host, port)
	case IsIP(host):
		return ""
	}
	return FQDN(host)
}
