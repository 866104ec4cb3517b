package envoy

import (
	xdscore "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcher "github.com/cncf/xds/go/xds/type/matcher/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	inputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	sniv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/cert_mappers/sni/v3"
	ondemandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/cert_selectors/on_demand_secret/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// The filter chain of hosts with certificates on demand. Envoy asks for the secret with the name that a client names in TLS, exactly as the client writes
// it, when the handshake waits for it.

// noServerName is the secret that Envoy asks for if a client names no host. No host has this name.
const noServerName = "no-sni"

// OnDemandCluster is a cluster without endpoints that gateways with certificates on demand have, and no others. A gateway that connects again lists its
// clusters first, which says which form of listeners it has.
const OnDemandCluster = "certificates-on-demand"

// OnDemandTLS terminates TLS with the certificate of the host that a client names. Envoy demands that sessions are not resumed.
func OnDemandTLS(p compliance.Parameters) *corev3.TransportSocket {
	return socket(tlsSocket, &tlsv3.DownstreamTlsContext{
		CommonTlsContext: &tlsv3.CommonTlsContext{
			AlpnProtocols: serverALPN(), TlsParams: parameters(p),
			CustomTlsCertificateSelector: extension("envoy.tls.certificate_selectors.on_demand_secret", &ondemandv3.Config{
				// An answer that is late must complete the handshake: the chain's time for a handshake bounds the wait.
				ConfigSource: ADS(), CertificateMapper: extension("envoy.tls.certificate_mappers.sni", &sniv3.SNI{DefaultValue: noServerName}),
			}),
		},
		RequireClientCertificate:         Bool(false),
		SessionTicketKeysType:            &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true},
		DisableStatefulSessionResumption: true,
	})
}

func extension(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: Pack(config)}
}

// ServerNames are the names in TLS that lead to a filter chain with a name: hosts, or patterns such as *.example.com.
type ServerNames struct {
	Chain string
	Names []string
}

// MatchServerNames makes a listener choose its filter chains by the name in TLS. The narrowest pattern wins. other is the chain for all other connections;
// empty for none. No chain may have a match of its own then.
func MatchServerNames(l *listenerv3.Listener, list []ServerNames, other string) {
	m := &xdsmatcher.ServerNameMatcher{}
	for _, n := range list {
		m.DomainMatchers = append(m.DomainMatchers, &xdsmatcher.ServerNameMatcher_DomainMatcher{Domains: n.Names, OnMatch: toChain(n.Chain)})
	}
	l.FilterChainMatcher = &xdsmatcher.Matcher{MatcherType: &xdsmatcher.Matcher_MatcherTree_{MatcherTree: &xdsmatcher.Matcher_MatcherTree{
		Input: xdsExtension("server name", &inputsv3.ServerNameInput{}),
		TreeType: &xdsmatcher.Matcher_MatcherTree_CustomMatch{
			CustomMatch: xdsExtension("envoy.matching.custom_matchers.domain_matcher", m),
		},
	}}}
	if other != "" {
		l.FilterChainMatcher.OnNoMatch = toChain(other)
	}
}

func toChain(name string) *xdsmatcher.Matcher_OnMatch {
	return &xdsmatcher.Matcher_OnMatch{OnMatch: &xdsmatcher.Matcher_OnMatch_Action{Action: xdsExtension("filter chain", wrapperspb.String(name))}}
}

func xdsExtension(name string, config proto.Message) *xdscore.TypedExtensionConfig {
	return &xdscore.TypedExtensionConfig{Name: name, TypedConfig: Pack(config)}
}

// Requests for a host that come over a connection for another host are answered 421, so that browsers, which send requests for several hosts over one
// connection, open one for the host. The filter denies them, and a rule for replies changes the status.
const (
	hostFilter       = "pilot.host_of_connection"
	otherHost        = "other-host"
	misdirected      = 421
	misdirectedReply = `response.code_details == "rbac_access_denied_matched_policy[` + otherHost + `]"`
)

// OnlyOwnHost makes requests for a host fail that come over a connection for another host. The connection manager has ChecksHost.
func OnlyOwnHost(h *routev3.VirtualHost, host string) {
	own := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: host}}
	config := Pack(&rbacfilterv3.RBACPerRoute{Rbac: &rbacfilterv3.RBAC{Rules: &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{otherHost: {
		Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_NotRule{NotRule: &rbacv3.Permission{
			Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: own},
		}}}},
		Principals: []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}},
	}}}}})
	if h.TypedPerFilterConfig == nil {
		h.TypedPerFilterConfig = map[string]*anypb.Any{}
	}
	h.TypedPerFilterConfig[hostFilter] = config
}

// checkHost makes a connection manager obey OnlyOwnHost.
func checkHost(m *hcmv3.HttpConnectionManager) {
	m.HttpFilters = append([]*hcmv3.HttpFilter{HTTPFilter(hostFilter, &rbacfilterv3.RBAC{})}, m.HttpFilters...)
	m.LocalReplyConfig = &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: Pack(&celv3.ExpressionFilter{Expression: misdirectedReply})},
		}}},
		StatusCode: wrapperspb.UInt32(misdirected),
	}}}
}
