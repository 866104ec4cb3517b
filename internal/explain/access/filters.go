package access

import (
	"fmt"
	"net/http"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	exthttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	exttcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// opened returns the message in an Any; nil if it is not of a type that is known here.
func opened(a *anypb.Any) proto.Message {
	if a == nil {
		return nil
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil
	}
	return m
}

// network goes through the network filters of a chain.
func (e *evaluation) network(c *listenerv3.FilterChain) {
	e.remote = e.Source
	for _, f := range c.Filters {
		switch config := opened(f.GetTypedConfig()).(type) {
		case *rbactcpv3.RBAC:
			e.rbac(rbacFilter{f.Name, config.Rules, config.ShadowRules, config.ShadowRulesStatPrefix, config.Matcher != nil || config.ShadowMatcher != nil})
		case *exttcpv3.ExtAuthz:
			e.ask(config.GetGrpcService().GetEnvoyGrpc().GetClusterName(), config.FilterEnabledMetadata)
		case *tcpv3.TcpProxy:
			if config.GetCluster() == "BlackHoleCluster" {
				e.deny(0, "", "connections to the port of the proxy itself are closed")
			}
			return
		case *hcmv3.HttpConnectionManager:
			e.http(config, c.TransportSocket != nil)
			return
		default:
			e.stop("the filter chain " + c.Name + " has a filter that is not known here: " + f.Name)
		}
		if e.decided {
			return
		}
	}
	e.stop("the filter chain " + c.Name + " does not end in a filter that is known here")
}

// http goes through a connection manager.
func (e *evaluation) http(m *hcmv3.HttpConnectionManager, terminated bool) {
	switch {
	case e.TCP:
		e.deny(0, "", "the port takes only HTTP")
		return
	case e.TLS != nil && !terminated:
		e.deny(0, "", "the port takes only plain text, and the client speaks TLS")
		return
	case unknownManager(m):
		e.stop("the connection manager has settings that are not known here")
		return
	}
	e.decision.HTTP, e.stage = true, AtProtocol
	if !e.HTTP2 && !slices.Contains(knownMethods(), e.Method) {
		e.deny(http.StatusBadRequest, "", fmt.Sprintf("the proxy refuses the method %s over HTTP/1", e.Method))
		return
	}
	if e.Method == http.MethodConnect {
		e.stop("requests with the method CONNECT are not known here")
		return
	}
	if !isAuthority(e.Host, e.HTTP2) {
		status := http.StatusBadRequest
		if e.HTTP2 {
			status = 0 // the stream is reset
		}
		e.deny(status, "", "the proxy refuses the host")
		return
	}
	var ok bool
	if e.headers, ok = e.readHeaders(); !ok {
		return
	}
	path, ok := normalize(e.headers.path, m)
	if !ok {
		e.deny(http.StatusBadRequest, "", "the proxy refuses the path")
		return
	}
	e.headers.path, e.decision.Path = path, withoutQuery(path)
	e.remote = e.headers.clientAddress(e.Source)
	for _, f := range m.HttpFilters {
		e.httpFilter(f)
		if e.decided {
			return
		}
	}
}

// knownMethods are the methods that Envoy accepts over HTTP/1.
func knownMethods() []string {
	return []string{
		"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "COPY", "LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH",
		"SEARCH", "UNLOCK", "BIND", "REBIND", "UNBIND", "ACL", "REPORT", "MKACTIVITY", "CHECKOUT", "MERGE", "NOTIFY", "SUBSCRIBE",
		"UNSUBSCRIBE", "PURGE", "MKCALENDAR", "LINK", "UNLINK", "SOURCE",
	}
}

// unknownManager reports whether a connection manager may change what filters see in a way that is not known here.
func unknownManager(m *hcmv3.HttpConnectionManager) bool {
	if m.GetUseRemoteAddress().GetValue() || m.XffNumTrustedHops > 0 || len(m.OriginalIpDetectionExtensions) > 0 || m.StripPortMode != nil ||
		m.StripMatchingHostPort || m.StripTrailingHostDot || len(m.EarlyHeaderMutationExtensions) > 0 || m.TypedHeaderValidationConfig != nil ||
		m.PathNormalizationOptions != nil || m.AddUserAgent.GetValue() {
		return true
	}
	configured := func(m map[string]*anypb.Any) bool { return len(m) > 0 }
	routes := m.GetRouteConfig()
	return routes == nil || configured(routes.TypedPerFilterConfig) || slices.ContainsFunc(routes.VirtualHosts, func(h *routev3.VirtualHost) bool {
		return configured(h.TypedPerFilterConfig) || slices.ContainsFunc(h.Routes, func(r *routev3.Route) bool { return configured(r.TypedPerFilterConfig) })
	})
}

// httpFilter goes through a filter of a connection manager.
func (e *evaluation) httpFilter(f *hcmv3.HttpFilter) {
	if f.Disabled {
		return
	}
	switch config := opened(f.GetTypedConfig()).(type) {
	case *rbachttpv3.RBAC:
		e.rbac(rbacFilter{f.Name, config.Rules, config.ShadowRules, config.ShadowRulesStatPrefix, config.Matcher != nil || config.ShadowMatcher != nil})
	case *jwtv3.JwtAuthentication:
		e.tokens(f.Name, config)
	case *exthttpv3.ExtAuthz:
		if config.FilterEnabled != nil || config.DenyAtDisable != nil {
			e.stop("the filter " + f.Name + " has settings that are not known here")
			return
		}
		cluster := config.GetHttpService().GetServerUri().GetCluster()
		if grpc := config.GetGrpcService(); grpc != nil {
			cluster = grpc.GetEnvoyGrpc().GetClusterName()
		}
		if e.ask(cluster, config.FilterEnabledMetadata) {
			e.changedBy(config)
		}
	case *faultv3.HTTPFault, *corsv3.Cors, *grpcwebv3.GrpcWeb, *routerv3.Router: // they do nothing that decides, unless routes configure them
	default:
		e.stop("the connection manager has a filter that is not known here: " + f.Name)
	}
}

// ask remembers that an external authorizer is asked, if it is about this request. It reports whether it may be.
func (e *evaluation) ask(cluster string, about *matcherv3.MetadataMatcher) bool {
	asked := yes
	if about != nil {
		asked = e.inMetadata(about)
	}
	switch asked {
	case no:
		return false
	case maybe:
		e.doubted(e.because())
	}
	e.decision.Provider = cluster
	return true
}

// changedBy hides the headers that an external authorizer may have changed.
func (e *evaluation) changedBy(config *exthttpv3.ExtAuthz) {
	const why = "it depends on the headers that the external authorizer sets"
	if config.GetGrpcService() != nil {
		e.headers.allHidden = why
		return
	}
	for _, pattern := range config.GetHttpService().GetAuthorizationResponse().GetAllowedUpstreamHeaders().GetPatterns() {
		if name := pattern.GetExact(); name != "" {
			e.headers.hidden[lowerASCII(name)] = why
		} else {
			e.headers.allHidden = why
		}
	}
}
