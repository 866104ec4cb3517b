package envoy

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
)

// maxDirectResponse is the largest body a route may answer with.
const maxDirectResponse = 1 << 20

// Routes is a route configuration without virtual hosts. Unknown clusters answer 503, they do not make Envoy refuse it.
func Routes(name string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:                           name,
		ValidateClusters:               Bool(false),
		MaxDirectResponseBodySizeBytes: Uint(maxDirectResponse),
		IgnorePortInHostMatching:       true,
	}
}

// MatchAll matches every request.
func MatchAll() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}

// To is the action that forwards to a cluster, without a timeout.
func To(cluster string) *routev3.RouteAction {
	return &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          Duration(0),
	}
}

// Retried adds the default retry policy and takes gRPC's own timeout as limit.
func Retried(a *routev3.RouteAction) *routev3.RouteAction {
	a.RetryPolicy = &routev3.RetryPolicy{
		RetryOn:    "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		NumRetries: Uint(2),
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
				TypedConfig: Pack(&hostsv3.PreviousHostsPredicate{}),
			},
		}},
		HostSelectionRetryMaxAttempts: 5,
	}
	a.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{
		MaxStreamDuration:    Duration(0),
		GrpcTimeoutHeaderMax: Duration(0),
	}
	return a
}

// Route is a route with an action; operation names it in traces.
func Route(name string, match *routev3.RouteMatch, action *routev3.RouteAction, operation string) *routev3.Route {
	return &routev3.Route{
		Name: name, Match: match,
		Action:    &routev3.Route_Route{Route: action},
		Decorator: &routev3.Decorator{Operation: operation},
	}
}

// VirtualHost is a virtual host.
func VirtualHost(name string, domains []string, routes ...*routev3.Route) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: domains, Routes: routes, IncludeRequestAttemptCount: true}
}

// Unknown is the virtual host for hosts nobody declared: they pass, or are refused.
func Unknown(pass bool) *routev3.VirtualHost {
	if pass {
		return VirtualHost(AllowAny, []string{"*"}, &routev3.Route{
			Name: AllowAny, Match: MatchAll(), Action: &routev3.Route_Route{Route: To(PassthroughCluster)},
		})
	}
	return VirtualHost(BlockAll, []string{"*"}, &routev3.Route{
		Name: BlockAll, Match: MatchAll(),
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 502}},
	})
}
