package authz

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	exthttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	exttcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// A filter of RBAC writes into the metadata of a request which rule of a CUSTOM policy matches. The filter that asks the provider acts
// only on requests with such metadata.
const (
	customPrefix    = "istio-ext-authz"
	customStats     = "istio_ext_authz_"
	customMatched   = customStats + "shadow_effective_policy_id"
	badCustom       = "-deny-due-to-bad-CUSTOM-action"
	extHTTPName     = "envoy.filters.http.ext_authz"
	extTCPName      = "envoy.filters.network.ext_authz"
	providerTimeout = 600 * time.Second
)

// custom makes the filters of the CUSTOM policies. If the provider cannot be asked, they deny what the policies match.
func (q *Queries) custom(r *query.Reader, k Key, list []*rules) Filters {
	if len(list) == 0 {
		return Filters{}
	}
	http, tcp := map[string]*rbacv3.Policy{}, map[string]*rbacv3.Policy{}
	providers := map[string]bool{}
	for _, p := range list {
		providers[p.provider] = true
		for i, rule := range p.http {
			http[customPrefix+"-"+policyName(p.key, i)] = rule
		}
		for i, rule := range p.tcp {
			tcp[customPrefix+"-"+policyName(p.key, i)] = rule
		}
	}
	if len(providers) > 1 {
		return denyCustom(http, tcp)
	}
	provider, ok := q.tables.Security.Providers.Get(r, list[0].provider)
	if !ok {
		return denyCustom(http, tcp)
	}
	p, trouble := q.scope.Authorizer(r, k.Hosts, provider)
	if trouble != "" {
		return denyCustom(http, tcp)
	}
	cluster := envoy.OutboundCluster(p.Port, "", p.Host)
	shadow := func(rules map[string]*rbacv3.Policy) *rbacv3.RBAC {
		return &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: rules}
	}
	f := Filters{HTTP: []*hcmv3.HttpFilter{envoy.HTTPFilter(httpFilterName, &rbachttpv3.RBAC{ShadowRules: shadow(http), ShadowRulesStatPrefix: customStats})}}
	if o := provider.GetEnvoyExtAuthzHttp(); o != nil {
		f.HTTP = append(f.HTTP, envoy.HTTPFilter(extHTTPName, askHTTP(o, p, cluster)))
		f.TCP = denyCustom(nil, tcp).TCP // other connections cannot be asked about over HTTP
		return f
	}
	o := provider.GetEnvoyExtAuthzGrpc()
	f.HTTP = append(f.HTTP, envoy.HTTPFilter(extHTTPName, askGRPC(o, p, cluster)))
	f.TCP = []*listenerv3.Filter{
		envoy.NetworkFilter(tcpFilterName, &rbactcpv3.RBAC{ShadowRules: shadow(tcp), ShadowRulesStatPrefix: customStats, StatPrefix: tcpStats}),
		envoy.NetworkFilter(extTCPName, &exttcpv3.ExtAuthz{
			StatPrefix: tcpStats, FailureModeAllow: o.FailOpen, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcService: grpcService(o, p, cluster), FilterEnabledMetadata: ifMatched(tcpFilterName), IncludePeerCertificate: true,
		}),
	}
	return f
}

// denyCustom denies what CUSTOM policies match.
func denyCustom(http, tcp map[string]*rbacv3.Policy) Filters {
	renamed := func(rules map[string]*rbacv3.Policy) map[string]*rbacv3.Policy {
		out := make(map[string]*rbacv3.Policy, len(rules))
		for name, rule := range rules {
			out[name+badCustom] = rule
		}
		return out
	}
	deny := enforced{action: rbacv3.RBAC_DENY, any: true, httpRules: renamed(http), tcpRules: renamed(tcp)}
	return Filters{HTTP: deny.http(), TCP: deny.tcp()}
}

// ifMatched matches requests and connections that some rule of a CUSTOM policy matches.
func ifMatched(filter string) *matcherv3.MetadataMatcher {
	return metadataMatcher(filter, []string{customMatched}, &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{
		StringMatch: textMatcher(customPrefix + "*"),
	}})
}

func askHTTP(o *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider, p scope.Authorizer, cluster string) *exthttpv3.ExtAuthz {
	service := &exthttpv3.HttpService{
		PathPrefix: o.PathPrefix,
		ServerUri: &corev3.HttpUri{
			Uri: fmt.Sprintf("http://%s:%d", p.Host, p.Port), Timeout: timeoutOf(o.Timeout), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(o.IncludeAdditionalHeadersInCheck)) {
		if service.AuthorizationRequest == nil {
			service.AuthorizationRequest = &exthttpv3.AuthorizationRequest{}
		}
		service.AuthorizationRequest.HeadersToAdd = append(service.AuthorizationRequest.HeadersToAdd,
			&corev3.HeaderValue{Key: name, Value: o.IncludeAdditionalHeadersInCheck[name]})
	}
	if len(o.HeadersToUpstreamOnAllow)+len(o.HeadersToDownstreamOnDeny)+len(o.HeadersToDownstreamOnAllow) > 0 {
		service.AuthorizationResponse = &exthttpv3.AuthorizationResponse{
			AllowedUpstreamHeaders: headerList(o.HeadersToUpstreamOnAllow), AllowedClientHeaders: headerList(o.HeadersToDownstreamOnDeny),
			AllowedClientHeadersOnSuccess: headerList(o.HeadersToDownstreamOnAllow),
		}
	}
	asked := o.IncludeRequestHeadersInCheck
	if len(asked) == 0 {
		asked = o.IncludeHeadersInCheck //nolint:staticcheck // the old name of the field still counts
	}
	return &exthttpv3.ExtAuthz{
		Services: &exthttpv3.ExtAuthz_HttpService{HttpService: service}, TransportApiVersion: corev3.ApiVersion_V3,
		AllowedHeaders: headerList(asked), FailureModeAllow: o.FailOpen, ClearRouteCache: o.ClearRouteCache,
		StatusOnError: statusOnError(o.StatusOnError), WithRequestBody: requestBody(o.IncludeRequestBodyInCheck, false),
		FilterEnabledMetadata: ifMatched(httpFilterName),
	}
}

func askGRPC(o *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider, p scope.Authorizer, cluster string) *exthttpv3.ExtAuthz {
	return &exthttpv3.ExtAuthz{
		Services: &exthttpv3.ExtAuthz_GrpcService{GrpcService: grpcService(o, p, cluster)}, TransportApiVersion: corev3.ApiVersion_V3,
		FailureModeAllow: o.FailOpen, ClearRouteCache: o.ClearRouteCache, StatusOnError: statusOnError(o.StatusOnError),
		WithRequestBody:       requestBody(o.IncludeRequestBodyInCheck, o.GetIncludeRequestBodyInCheck().GetPackAsBytes()),
		FilterEnabledMetadata: ifMatched(httpFilterName), IncludePeerCertificate: true,
	}
}

func grpcService(o *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider, p scope.Authorizer, cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: p.Host}},
		Timeout:         timeoutOf(o.Timeout),
	}
}

func timeoutOf(d *durationpb.Duration) *durationpb.Duration {
	return envoy.Duration(cmp.Or(d.AsDuration(), providerTimeout))
}

// statusOnError is the status of responses if the provider does not answer. Without a valid number, Envoy answers 403.
func statusOnError(text string) *typev3.HttpStatus {
	code, err := strconv.ParseInt(text, 10, 32)
	if _, known := typev3.StatusCode_name[int32(code)]; err != nil || !known || code == 0 {
		return nil
	}
	return &typev3.HttpStatus{Code: typev3.StatusCode(code)}
}

func requestBody(b *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody, packed bool) *exthttpv3.BufferSettings {
	if b.GetMaxRequestBytes() == 0 {
		return nil
	}
	return &exthttpv3.BufferSettings{MaxRequestBytes: b.MaxRequestBytes, AllowPartialMessage: b.AllowPartialMessage, PackAsBytes: packed}
}

// headerList matches names of headers by patterns, without regard to case.
func headerList(patterns []string) *matcherv3.ListStringMatcher {
	if len(patterns) == 0 {
		return nil
	}
	m := &matcherv3.ListStringMatcher{}
	for _, pattern := range patterns {
		text := textMatcher(strings.ToLower(pattern))
		if pattern != "*" { // a regular expression has no case to ignore
			text.IgnoreCase = true
		}
		m.Patterns = append(m.Patterns, text)
	}
	return m
}
