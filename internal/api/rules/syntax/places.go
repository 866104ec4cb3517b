package syntax

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// DefaultEndpoint checks the address of the application, to which an ingress listener forwards.
func DefaultEndpoint(s string) string {
	if IsUnix(s) {
		return Unix(s)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("%s needs an address and a port, like 127.0.0.1:8080", document.Quote(s))
	}
	switch host {
	case "", "127.0.0.1", "0.0.0.0", "::1", "::":
	default:
		return fmt.Sprintf("%s: the application is reached at 127.0.0.1, 0.0.0.0 (its own address), [::1], [::] or a unix:// socket only", document.Quote(s))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Sprintf("%s: the port must be a number from 1 to 65535", document.Quote(s))
	}
	return ""
}

// KeyURL checks the address of a key set.
func KeyURL(s string) string {
	if len(s) > 2048 {
		return fmt.Sprintf("has %d characters, the limit is 2048", len(s))
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "is not the address of a key set; write http://HOST/PATH or https://HOST/PATH"
	}
	return ""
}

// BackendService checks "host" or "namespace/host".
func BackendService(s string) string {
	namespace, host, ok := strings.Cut(s, "/")
	switch {
	case !ok && IsIP(s):
		return ""
	case !ok:
		return FQDN(s)
	}
	if reason := Name(strings.TrimPrefix(namespace, "~")); reason != "" && namespace != "*" && namespace != "." {
		return reason
	}
	if reason := WholeWildcard(host); reason != "" {
		return reason
	}
	if host != "*" && !strings.Contains(host, ".") {
		return document.Quote(host) + " has no dot; write the full name of the host"
	}
	return ""
}
