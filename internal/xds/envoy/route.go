package envoy

import (
	"math"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	prioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// maxDirectResponse is the maximum size in bytes of a direct response body.
const maxDirectResponse = 1 << 20

// RouteConfiguration is a route configuration without virtual hosts. A route to an unknown cluster answers 503; Envoy
// does not refuse the configuration for it.
func RouteConfiguration(name string) *routev3.RouteConfiguration {
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

// ForwardTo is the action that forwards to a cluster without a timeout, except the deadline of a gRPC request.
func ForwardTo(cluster string) *routev3.RouteAction {
	a := Forward(nil)
	a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: cluster}
	return a
}

// defaultRetryOn are the retry conditions if no rule sets them: the request has not been processed.
const defaultRetryOn = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"

// maxHostSelections is how often a retry asks the load balancer for an endpoint that was not tried yet.
const maxHostSelections = 5

// RetryPolicy is the default retry policy: two more attempts.
func RetryPolicy() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{RetryOn: defaultRetryOn, NumRetries: Uint(2), HostSelectionRetryMaxAttempts: maxHostSelections}
}

// RetryUnsent is the retry policy for requests that Envoy could not send to the application, because it had closed
// the connection.
func RetryUnsent() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: Uint(2)}
}

// SetRetryBackoff sets the least interval between attempts; nil keeps Envoy's.
func SetRetryBackoff(p *routev3.RetryPolicy, base *durationpb.Duration) {
	if base != nil {
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: base}
	}
}

// retriableStatusCodes is the retry condition that makes Envoy look at the list of status codes.
const retriableStatusCodes = "retriable-status-codes"

// SetRetryConditions sets the conditions of retries: names and status codes, separated by commas. An empty text keeps the conditions of the policy.
func SetRetryConditions(p *routev3.RetryPolicy, text string) {
	if text == "" {
		return
	}
	var words []string
	listed := false
	p.RetriableStatusCodes = nil
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if code, err := strconv.ParseUint(word, 10, 16); err == nil {
			p.RetriableStatusCodes = append(p.RetriableStatusCodes, uint32(code))
		} else if word != "" {
			words = append(words, word)
			listed = listed || word == retriableStatusCodes
		}
	}
	if len(p.RetriableStatusCodes) > 0 && !listed {
		words = append(words, retriableStatusCodes)
	}
	p.RetryOn = strings.Join(words, ",")
}

// AvoidPreviousHosts makes retries prefer endpoints that were not tried yet.
func AvoidPreviousHosts() []*routev3.RetryPolicy_RetryHostPredicate {
	return []*routev3.RetryPolicy_RetryHostPredicate{{
		Name: "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
			TypedConfig: Pack(&hostsv3.PreviousHostsPredicate{}),
		},
	}}
}

// AvoidPreviousPriorities makes every second retry leave out the priorities (localities) that were tried.
func AvoidPreviousPriorities() *routev3.RetryPolicy_RetryPriority {
	return &routev3.RetryPolicy_RetryPriority{
		Name: "envoy.retry_priorities.previous_priorities",
		ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
			TypedConfig: Pack(&prioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 2}),
		},
	}
}

// Forward is a forwarding action without a destination. A gRPC deadline counts up to the timeout; nil and 0 mean no
// timeout.
func Forward(timeout *durationpb.Duration) *routev3.RouteAction {
	if timeout == nil {
		timeout = Duration(0)
	}
	// The field that replaces max_grpc_timeout makes Envoy ignore the timeout of other requests.
	return &routev3.RouteAction{Timeout: timeout, MaxGrpcTimeout: timeout} //nolint:staticcheck // see above
}

// Route is a route with an action. operation names it in traces.
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

// Percent is a percentage of requests, exact to a ten-thousandth of a percent.
func Percent(p float64) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(p * 10_000)), Denominator: typev3.FractionalPercent_MILLION}
}

// Share is a percentage of requests that no runtime key overrides.
func Share(p float64) *corev3.RuntimeFractionalPercent {
	return &corev3.RuntimeFractionalPercent{DefaultValue: Percent(p)}
}

// DynamicUnknownHost is the virtual host for undeclared hosts that Envoy resolves.
func DynamicUnknownHost() *routev3.VirtualHost {
	return VirtualHost(AllowAnyByName, []string{"*"}, &routev3.Route{
		Name: AllowAnyByName, Match: MatchAll(), Action: &routev3.Route_Route{Route: ForwardTo(DynamicDNSCluster)},
	})
}

// UnknownTrafficCluster is the cluster for traffic to undeclared destinations: a service's cluster, or without a host the
// original destination.
func UnknownTrafficCluster(port uint32, subset, host string) string {
	if host == "" {
		return PassthroughCluster
	}
	return OutboundCluster(port, subset, host)
}

// AllowAnyHost is the virtual host for undeclared hosts if they are allowed. Requests go to the cluster.
func AllowAnyHost(cluster string) *routev3.VirtualHost {
	return VirtualHost(AllowAny, []string{"*"}, &routev3.Route{
		Name: AllowAny, Match: MatchAll(), Action: &routev3.Route_Route{Route: ForwardTo(cluster)},
	})
}

// BlockAllHost is the virtual host for undeclared hosts if they are refused.
func BlockAllHost() *routev3.VirtualHost {
	return VirtualHost(BlockAll, []string{"*"}, &routev3.Route{
		Name: BlockAll, Match: MatchAll(),
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 502}},
	})
}

// noRoutes is the name of the virtual host of gateways without routes.
const noRoutes = "blackhole"

// NoRoutesHost is the virtual host of gateways without routes: it answers 404.
func NoRoutesHost() *routev3.VirtualHost {
	return VirtualHost(noRoutes, []string{"*"}, &routev3.Route{
		Name: noRoutes, Match: MatchAll(),
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 404}},
	})
}
