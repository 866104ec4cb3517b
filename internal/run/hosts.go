package run

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// OnlyHosts serves requests whose Host header has an address, localhost, or one of names, and refuses all others. A web page whose author
// makes its name lead to this host (DNS rebinding) can have a browser send requests, but only with that name in the Host header.
// A request without the header is served: no browser sends one. remedy says how to add a name; empty if none can be added.
func OnlyHosts(names []string, remedy string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostOf(r.Host); !known(host, names) {
			text := fmt.Sprintf("the Host header of the request is %.100q, and this path answers only to an address, localhost or a name of this server", host)
			if remedy != "" {
				text += "; " + remedy
			}
			http.Error(w, text, http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostOf returns the name or address in a Host header.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func known(host string, names []string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) })
}
