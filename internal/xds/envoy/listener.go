package envoy

import (
	"net/netip"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
)

// Names of filters.
const (
	hcmFilter           = "envoy.filters.network.http_connection_manager"
	tcpProxyFilter      = "envoy.filters.network.tcp_proxy"
	httpInspectorFilter = "envoy.filters.listener.http_inspector"
	tlsInspectorFilter  = "envoy.filters.listener.tls_inspector"
	originalDstFilter   = "envoy.filters.listener.original_dst"
	originalSrcFilter   = "envoy.filters.listener.original_src"
)

// Direction says which way a listener's traffic goes, seen from the workload.
type Direction = corev3.TrafficDirection

// The directions.
const (
	Inbound  = corev3.TrafficDirection_INBOUND
	Outbound = corev3.TrafficDirection_OUTBOUND
)

// Listener is a listener without chains. Unless bound, it gets only connections that the virtual listener hands over.
func Listener(name, ip string, port uint32, way Direction, bound bool) *listenerv3.Listener {
	l := &listenerv3.Listener{Name: name, Address: Address(ip, port), TrafficDirection: way}
	if !bound {
		l.BindToPort = Bool(false)
	}
	return l
}

// SniffHTTP makes a listener look at the first bytes to tell HTTP, except of connections to the known ports.
func SniffHTTP(l *listenerv3.Listener, known ...uint32) {
	inspect(l, httpInspectorFilter, &httpinspectorv3.HttpInspector{}, known)
}

// SniffTLS makes a listener look at the first bytes to tell TLS and what its client asks for, except of connections to the
// known ports. It must come before SniffHTTP.
func SniffTLS(l *listenerv3.Listener, known ...uint32) {
	inspect(l, tlsInspectorFilter, &tlsinspectorv3.TlsInspector{InitialReadBufferSize: Uint(tlsReadBuffer)}, known)
}

// tlsReadBuffer is what is allocated for the beginning of a TLS connection; most client hellos fit.
const tlsReadBuffer = 512

// inspect adds a filter for connections except to the known ports. Where the server speaks first there would be nothing
// to see; DetectWithin says for how long that is awaited.
func inspect(l *listenerv3.Listener, name string, config proto.Message, known []uint32) {
	f := &listenerv3.ListenerFilter{
		Name:       name,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(config)},
	}
	if len(known) > 0 {
		f.FilterDisabled = anyPort(known)
	}
	l.ListenerFilters = append(l.ListenerFilters, f)
}

// DetectWithin bounds how long the first bytes are waited for; 0 is for ever. After that it goes on without.
func DetectWithin(l *listenerv3.Listener, timeout time.Duration) {
	l.ListenerFiltersTimeout = Duration(timeout)
	l.ContinueOnListenerFiltersTimeout = true
}

func anyPort(ports []uint32) *listenerv3.ListenerFilterChainMatchPredicate {
	rules := make([]*listenerv3.ListenerFilterChainMatchPredicate, 0, len(ports))
	for _, p := range ports {
		rules = append(rules, &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
				DestinationPortRange: &typev3.Int32Range{Start: int32(p), End: int32(p) + 1},
			},
		})
	}
	if len(rules) == 1 {
		return rules[0]
	}
	return &listenerv3.ListenerFilterChainMatchPredicate{
		Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
			OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules},
		},
	}
}

// RestoreDestination makes a listener learn where a redirected connection was going.
func RestoreDestination(l *listenerv3.Listener) {
	l.ListenerFilters = append(l.ListenerFilters, &listenerv3.ListenerFilter{
		Name:       originalDstFilter,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(&originaldstv3.OriginalDst{})},
	})
}

// sourceMark is on the packets of connections that have a client's address: packet filter rules of Istio's kind know them by
// it.
const sourceMark = 1337

// KeepSource makes connections to the application come from the client's address.
func KeepSource(l *listenerv3.Listener) {
	l.ListenerFilters = append(l.ListenerFilters, &listenerv3.ListenerFilter{
		Name:       originalSrcFilter,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(&originalsrcv3.OriginalSrc{Mark: sourceMark})},
	})
}

// Chain is a filter chain; a nil match takes everything.
func Chain(name string, match *listenerv3.FilterChainMatch, filters ...*listenerv3.Filter) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Name: name, FilterChainMatch: match, Filters: filters}
}

// MatchHTTP matches connections that were found to be plain HTTP, of version 1.0 too if old.
func MatchHTTP(old bool) *listenerv3.FilterChainMatch {
	m := &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer", ApplicationProtocols: []string{"http/1.1", "h2c"}}
	if old {
		m.ApplicationProtocols = append(m.ApplicationProtocols, "http/1.0")
	}
	return m
}

// MatchPort matches connections that were going to a port.
func MatchPort(port uint32) *listenerv3.FilterChainMatch {
	return &listenerv3.FilterChainMatch{DestinationPort: Uint(port)}
}

// MatchAddresses adds blocks of addresses, as "address/bits", to what a match takes.
func MatchAddresses(m *listenerv3.FilterChainMatch, blocks []string) {
	for _, b := range blocks {
		if p, err := netip.ParsePrefix(b); err == nil {
			m.PrefixRanges = append(m.PrefixRanges, &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: Uint(uint32(p.Bits()))})
		}
	}
}

// HTTPOptions are how requests are taken, apart from where they go.
type HTTPOptions struct {
	// Old accepts HTTP/1.0.
	Old bool
	// NormalizePath resolves dots, MergeSlashes makes several slashes one, DecodeSlashes decodes encoded ones.
	NormalizePath, MergeSlashes, DecodeSlashes bool
	// KeepServer leaves the server header of responses; else it is Server, or Envoy's default if that is empty.
	KeepServer bool
	Server     string
	// NoRequestID adds no request id; NoDebugHeaders none of Envoy's own headers.
	NoRequestID, NoDebugHeaders bool
	// KeepCase keeps the case of the names of HTTP/1 headers.
	KeepCase bool
	// ByName says that routes may lead to dynamic clusters.
	ByName bool
	// Web says that calls of gRPC-Web become gRPC.
	Web bool
	// Idle is how long a connection may be without requests; 0: as Envoy has it.
	Idle time.Duration
}

// HTTPByName serves HTTP by a route configuration that is fetched from this stream.
func HTTPByName(stat, route string, o HTTPOptions) *listenerv3.Filter {
	m := connectionManager(stat, o)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ADS(), RouteConfigName: route}}
	return networkFilter(hcmFilter, m)
}

// HTTPTo serves HTTP by a route configuration of its own.
func HTTPTo(stat string, routes *routev3.RouteConfiguration, o HTTPOptions) *listenerv3.Filter {
	m := connectionManager(stat, o)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	return networkFilter(hcmFilter, m)
}

func connectionManager(stat string, o HTTPOptions) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:        stat,
		CodecType:         hcmv3.HttpConnectionManager_AUTO,
		UseRemoteAddress:  Bool(false),
		NormalizePath:     Bool(o.NormalizePath),
		MergeSlashes:      o.MergeSlashes,
		ServerName:        o.Server,
		StreamIdleTimeout: Duration(0),
		// Whether a body is wanted is the server's to say, not Envoy's.
		Proxy_100Continue: true,
		UpgradeConfigs:    []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		HttpFilters:       httpFilters(o),
	}
	if o.Idle > 0 {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: Duration(o.Idle)}
	}
	if o.DecodeSlashes {
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
	if o.KeepServer {
		m.ServerHeaderTransformation, m.ServerName = hcmv3.HttpConnectionManager_PASS_THROUGH, ""
	}
	if o.NoRequestID {
		m.GenerateRequestId = Bool(false)
	}
	if o.Old || o.KeepCase {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AcceptHttp_10: o.Old}
	}
	if o.KeepCase {
		m.HttpProtocolOptions.HeaderKeyFormat = keepCase()
	}
	return m
}

// keepCase remembers how the names of headers were spelled.
func keepCase() *corev3.Http1ProtocolOptions_HeaderKeyFormat {
	return &corev3.Http1ProtocolOptions_HeaderKeyFormat{
		HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{
			StatefulFormatter: &corev3.TypedExtensionConfig{
				Name: "preserve_case", TypedConfig: Pack(&preservecasev3.PreserveCaseFormatterConfig{}),
			},
		},
	}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: Pack(config)}}
}
