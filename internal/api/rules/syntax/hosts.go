package syntax

import "strings"

// HostsOverlap reports whether one of two hosts, exact or wildcard, covers the other.
func HostsOverlap(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == b || Covers(a, b) || Covers(b, a)
}

// Covers reports whether the wildcard w covers all hosts that h covers.
func Covers(w, h string) bool {
	if !strings.HasPrefix(w, "*") {
		return w == h
	}
	return strings.HasSuffix(strings.TrimPrefix(h, "*"), w[1:]) && len(strings.TrimPrefix(h, "*")) >= len(w)-1
}

// IsGeneratedSNI reports whether a host is a server name that sidecars generate for gateways that pass TLS through:
// outbound_.port_.subset_.host.
func IsGeneratedSNI(h string) bool {
	rest, ok := strings.CutPrefix(h, "outbound_.")
	if !ok {
		return false
	}
	parts := strings.SplitN(rest, "_.", 3)
	return len(parts) == 3 && isDigits(parts[0]) && (parts[1] == "" || IsLabel(parts[1], true)) && FQDN(parts[2]) == ""
}
