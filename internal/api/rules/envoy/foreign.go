package envoy

import "strings"

// Foreign reports whether a message belongs to an extension that only Istio's own proxy has, and advises what an unmodified Envoy has instead.
func Foreign(name string) (advice string, foreign bool) {
	switch {
	case strings.HasPrefix(name, "stats."):
		return "metrics are configured by Telemetry", true
	case strings.HasPrefix(name, "envoy.tcp.metadataexchange."), strings.HasPrefix(name, "io.istio.http.peer_metadata."):
		return "remove the patch: workloads learn who calls from the certificate", true
	case strings.HasPrefix(name, "istio.envoy.config.filter.http.alpn."):
		return "remove the patch: clusters offer the protocols of their endpoints", true
	case strings.HasPrefix(name, "istio.envoy.config.filter.http.authn."), strings.HasPrefix(name, "istio.envoy.config.filter.http.jwt_auth."),
		strings.HasPrefix(name, "istio.envoy.config.filter.http.istio_authn."):
		return "write a RequestAuthentication, or use envoy.filters.http.jwt_authn", true
	case strings.HasPrefix(name, "istio.envoy.config.filter.network.tcp_cluster_rewrite."), strings.HasPrefix(name, "envoy.config.filter.network.tcp_cluster_rewrite."):
		return "route the connections with a VirtualService", true
	case isForeign(name):
		return "there is no substitute", true
	}
	return "", false
}

// ForeignFilter reports whether a name is the usual one of a filter that only Istio's own proxy has.
func ForeignFilter(name string) bool {
	switch name {
	case "istio.stats", "istio.alpn", "istio.metadata_exchange", "istio_authn", "istio.peer_metadata", "envoy.filters.http.peer_metadata", "envoy.filters.network.metadata_exchange",
		"envoy.filters.http.istio_stats", "jwt-auth", "mixer", "forward_downstream_sni", "envoy.filters.network.forward_downstream_sni", "envoy.filters.network.sni_verifier":
		return true
	}
	return false
}
