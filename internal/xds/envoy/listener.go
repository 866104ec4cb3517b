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
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Names of filters.
const (
	hcmFilter           = "envoy.filters.network.http_connection_manager"
	tcpProxyFilter      = "envoy.filters.network.tcp_proxy"
	httpInspectorFilter = "envoy.filters.listener.http_inspector"
	tlsInspectorFilter  = "envoy.filters.listener.tls_inspector"
	originalDstFilter   = "envoy.filters.listener.original_dst"
	proxyProtocolFilter = "envoy.filters.listener.proxy_protocol"
	originalSrcFilter   = "envoy.filters.listener.original_src"
)

// Direction is the direction of a listener's traffic, seen from the workload.
type Direction = corev3.TrafficDirection

// The directions.
const (
	Inbound  = corev3.TrafficDirection_INBOUND
	Outbound = corev3.TrafficDirection_OUTBOUND
)

// Listener is a listener without filter chains. If it is not bound, it has no socket and gets only connections that the
// virtual listener hands over.
func Listener(name, ip string, port uint32, way Direction, bound bool) *listenerv3.Listener {
	l := &listenerv3.Listener{Name: name, Address: Address(ip, port), TrafficDirection: way}
	if !bound {
		l.BindToPort = Bool(false)
	}
	return l
}

// BalanceExactly makes listeners give each new connection to the worker with the fewest.
func BalanceExactly(list ...*listenerv3.Listener) {
	for _, l := range list {
		l.ConnectionBalanceConfig = &listenerv3.Listener_ConnectionBalanceConfig{
			BalanceType: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance_{ExactBalance: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance{}},
		}
	}
}

// BindOwnSocket makes Envoy bind a socket for a listener that takes the place of one without a socket. Envoy lets a listener have the sockets of its
// predecessor with the same name, address and options, whether they are bound or not (ListenerManagerImpl::setupSocketFactoryForListener), and
// then crashes (1.40). So listeners with a socket have an option more, which Envoy sets for all sockets that it listens on anyway: SO_REUSEADDR.
func BindOwnSocket(l *listenerv3.Listener) {
	l.SocketOptions = append(l.SocketOptions, &corev3.SocketOption{
		Description: "a socket of its own", Level: 1, Name: 2, // on Linux: SOL_SOCKET, SO_REUSEADDR
		Value: &corev3.SocketOption_IntValue{IntValue: 1}, State: corev3.SocketOption_STATE_PREBIND,
	})
}

// AddFamily adds the IPv6 address to a listener at the wildcard or loopback address of IPv4.
func AddFamily(l *listenerv3.Listener) {
	at := l.Address.GetSocketAddress()
	second := ""
	switch at.Address {
	case Wildcard:
		second = wildcardIPv6
	case Loopback:
		second = LoopbackIPv6
	default:
		return
	}
	AddAddress(l, second)
}

// AddAddress adds an address to a listener, with the same port.
func AddAddress(l *listenerv3.Listener, ip string) {
	at := l.Address.GetSocketAddress()
	other := Address(ip, at.GetPortValue())
	other.GetSocketAddress().Protocol = at.Protocol
	l.AdditionalAddresses = append(l.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: other})
}

// Inspected lists the ports where a listener filter looks at the first bytes of connections. A server that speaks first has to wait
// for the detection timeout there.
type Inspected struct {
	// All is true for all ports but Except. Otherwise only the ports in Except are inspected.
	All    bool
	Except []uint32
}

// AllPorts selects all ports.
func AllPorts() Inspected { return Inspected{All: true} }

// AddHTTPInspector makes a listener detect HTTP.
func AddHTTPInspector(l *listenerv3.Listener, on Inspected) {
	addInspector(l, httpInspectorFilter, &httpinspectorv3.HttpInspector{}, on)
}

// AddTLSInspector makes a listener detect TLS and its SNI and ALPN. It must be called before AddHTTPInspector.
func AddTLSInspector(l *listenerv3.Listener, on Inspected) {
	addInspector(l, tlsInspectorFilter, &tlsinspectorv3.TlsInspector{InitialReadBufferSize: Uint(tlsReadBuffer)}, on)
}

// tlsReadBuffer is the initial buffer size in bytes for the beginning of a TLS connection. Most client hellos fit.
const tlsReadBuffer = 512

func addInspector(l *listenerv3.Listener, name string, config proto.Message, on Inspected) {
	f := &listenerv3.ListenerFilter{
		Name:       name,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(config)},
	}
	switch {
	case !on.All && len(on.Except) == 0:
		return
	case !on.All:
		f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: anyPort(on.Except)},
		}
	case len(on.Except) > 0:
		f.FilterDisabled = anyPort(on.Except)
	}
	l.ListenerFilters = append(l.ListenerFilters, f)
}

// SetDetectionTimeout bounds how long protocol detection waits for the first bytes; 0 means without a bound. Afterwards
// the connection continues as unknown.
func SetDetectionTimeout(l *listenerv3.Listener, timeout time.Duration) {
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

// AddOriginalDst makes a listener restore the original destination of redirected connections.
func AddOriginalDst(l *listenerv3.Listener) {
	l.ListenerFilters = append(l.ListenerFilters, &listenerv3.ListenerFilter{
		Name:       originalDstFilter,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(&originaldstv3.OriginalDst{})},
	})
}

// AddProxyProtocol makes a listener read the address of the client from a header of the PROXY protocol. It must be called before other
// listener filters are added.
func AddProxyProtocol(l *listenerv3.Listener) {
	l.ListenerFilters = append(l.ListenerFilters, &listenerv3.ListenerFilter{
		Name:       proxyProtocolFilter,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(&proxyprotocolv3.ProxyProtocol{})},
	})
}

// originalSrcMark is the packet mark of connections that keep the client's address. The packet filter rules that Istio's
// tools install recognise them by it.
const originalSrcMark = 1337

// AddOriginalSrc makes connections to the application come from the client's address.
func AddOriginalSrc(l *listenerv3.Listener) {
	l.ListenerFilters = append(l.ListenerFilters, &listenerv3.ListenerFilter{
		Name:       originalSrcFilter,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(&originalsrcv3.OriginalSrc{Mark: originalSrcMark})},
	})
}

// Chain is a filter chain. A nil match matches every connection.
func Chain(name string, match *listenerv3.FilterChainMatch, filters ...*listenerv3.Filter) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Name: name, FilterChainMatch: match, Filters: filters}
}

// MatchHTTP matches connections that were detected as plain HTTP; with old, HTTP/1.0 as well.
func MatchHTTP(old bool) *listenerv3.FilterChainMatch {
	m := &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer", ApplicationProtocols: []string{"http/1.1", "h2c"}}
	if old {
		m.ApplicationProtocols = append(m.ApplicationProtocols, "http/1.0")
	}
	return m
}

// MatchTLS matches connections that were detected as TLS and whose client offers one of some protocols, or any if there are none.
func MatchTLS(protocols ...string) *listenerv3.FilterChainMatch {
	return &listenerv3.FilterChainMatch{TransportProtocol: "tls", ApplicationProtocols: protocols}
}

// MatchPlain matches connections that were not detected as TLS.
func MatchPlain() *listenerv3.FilterChainMatch {
	return &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"}
}

// The protocols that clients of the mesh offer by ALPN. The names of HTTP say that the connection is HTTP.

// MeshHTTP are the protocols for connections that are HTTP.
func MeshHTTP() []string { return []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"} }

// MeshTCP are the protocols for connections whose protocol is unknown.
func MeshTCP() []string { return []string{"istio-peer-exchange", "istio"} }

// MeshALPN are all of them.
func MeshALPN() []string { return append(MeshTCP(), MeshHTTP()...) }

// MeshClientALPN are the protocols that a client of the mesh offers to a port whose requests it sends over HTTP/1 or HTTP/2, or to one
// of another protocol. A server with protocol detection recognises HTTP by them. A proxy build of Istio would choose them per
// connection; stock Envoy offers the same ones on all connections of a cluster.
func MeshClientALPN(http1, http2 bool) []string {
	switch {
	case http2:
		return []string{"istio-h2", "istio", "h2"}
	case http1:
		return []string{"istio-http/1.1", "istio"}
	}
	return []string{"istio"}
}

// MatchPort matches connections whose original destination has the port.
func MatchPort(port uint32) *listenerv3.FilterChainMatch {
	return &listenerv3.FilterChainMatch{DestinationPort: Uint(port)}
}

// MatchAddresses adds address blocks, each as "address/bits", to a match.
func MatchAddresses(m *listenerv3.FilterChainMatch, blocks []string) {
	for _, b := range blocks {
		if p, err := netip.ParsePrefix(b); err == nil {
			m.PrefixRanges = append(m.PrefixRanges, &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: Uint(uint32(p.Bits()))})
		}
	}
}

// HTTPOptions say how requests are handled, apart from their routes.
type HTTPOptions struct {
	// AcceptHTTP10 accepts HTTP/1.0.
	AcceptHTTP10 bool
	// NormalizePath resolves dots in paths, MergeSlashes replaces repeated slashes by one, DecodeSlashes decodes encoded
	// slashes.
	NormalizePath, MergeSlashes, DecodeSlashes bool
	// PassServerHeader keeps the Server header of responses. Otherwise it is replaced by Server, or by Envoy's default if
	// that is empty.
	PassServerHeader bool
	Server           string
	// NoRequestID adds no request id. SuppressEnvoyHeaders adds none of Envoy's own headers.
	NoRequestID, SuppressEnvoyHeaders bool
	// PreserveHeaderCase preserves the case of HTTP/1 header names.
	PreserveHeaderCase bool
	// ForwardPort adds the header x-forwarded-port where UseRemoteAddress is set.
	ForwardPort bool
	// DynamicClusters says that routes may lead to dynamic clusters.
	DynamicClusters bool
	// Families are the IP versions of the proxy's addresses, which decide to which addresses the host of a request is resolved.
	Families mesh.Families
	// HostsOnDemand makes requests for hosts that Envoy does not have wait until it has asked for them.
	HostsOnDemand bool
	// First are the filters before all others but that one.
	First []*hcmv3.HttpFilter
	// GRPCWeb translates gRPC-Web calls to gRPC.
	GRPCWeb bool
	// IdleTimeout is how long a connection may be without requests. 0 means Envoy's default.
	IdleTimeout time.Duration
	// UseRemoteAddress takes the address of the connection as the client's, and appends it to x-forwarded-for. Before it,
	// TrustedHops proxies are trusted to have appended theirs.
	UseRemoteAddress bool
	TrustedHops      uint32
	// Connections are the settings for connections. They win over IdleTimeout, HeadersTimeout, MergeSlashes and DecodeSlashes.
	Connections connection.Settings
	// HeadersTimeout is how long a client may take to send the headers of a request; 0 for as long as it likes.
	HeadersTimeout time.Duration
	// ClientCert says which details of a client's certificate the application gets; nil for none.
	ClientCert *ClientCert
	// HTTP3 says that the listener takes HTTP/3 and nothing else.
	HTTP3 bool
	// StripHostPort removes the port from the Host of requests, before routes and filters see it.
	StripHostPort bool
	// Sessions says that routes may send requests to the endpoint of their session.
	Sessions bool
	// ChecksHost refuses requests for virtual hosts that must not be reached over the connection; see OnlyOwnHost.
	ChecksHost bool
}

// ClientCert describes the header x-forwarded-client-cert of requests.
type ClientCert struct {
	// Forward says what becomes of the header that a client sent.
	Forward hcmv3.HttpConnectionManager_ForwardClientCertDetails
	// Subject, Cert, Chain, DNS and URI are the parts of the client's certificate that are added.
	Subject, Cert, Chain, DNS, URI bool
}

// HTTPWithRDS is the connection manager whose route configuration comes on this stream.
func HTTPWithRDS(stat, route string, o HTTPOptions) *listenerv3.Filter {
	m := connectionManager(stat, o)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ADS(), RouteConfigName: route}}
	return NetworkFilter(hcmFilter, m)
}

// HTTPWithRoutes is the connection manager that holds its route configuration.
func HTTPWithRoutes(stat string, routes *routev3.RouteConfiguration, o HTTPOptions) *listenerv3.Filter {
	m := connectionManager(stat, o)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	return NetworkFilter(hcmFilter, m)
}

func connectionManager(stat string, o HTTPOptions) *hcmv3.HttpConnectionManager {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:           stat,
		CodecType:            hcmv3.HttpConnectionManager_AUTO,
		UseRemoteAddress:     Bool(o.UseRemoteAddress),
		XffNumTrustedHops:    o.TrustedHops,
		AppendXForwardedPort: o.ForwardPort,
		NormalizePath:        Bool(o.NormalizePath),
		MergeSlashes:         o.MergeSlashes,
		ServerName:           o.Server,
		StreamIdleTimeout:    Duration(0),
		// The server, not Envoy, decides whether the client should send the body.
		Proxy_100Continue: true,
		UpgradeConfigs:    []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		HttpFilters:       httpFilters(o),
	}
	if o.IdleTimeout > 0 {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: Duration(o.IdleTimeout)}
	}
	if o.StripHostPort {
		m.StripPortMode = &hcmv3.HttpConnectionManager_StripAnyHostPort{StripAnyHostPort: true}
	}
	if c := o.ClientCert; c != nil {
		m.ForwardClientCertDetails = c.Forward
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
			Subject: Bool(c.Subject), Cert: c.Cert, Chain: c.Chain, Dns: c.DNS, Uri: c.URI,
		}
	}
	if o.DecodeSlashes {
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
	if o.PassServerHeader {
		m.ServerHeaderTransformation, m.ServerName = hcmv3.HttpConnectionManager_PASS_THROUGH, ""
	}
	if o.NoRequestID {
		m.GenerateRequestId = Bool(false)
	}
	if o.AcceptHTTP10 || o.PreserveHeaderCase {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AcceptHttp_10: o.AcceptHTTP10}
	}
	if o.PreserveHeaderCase {
		m.HttpProtocolOptions.HeaderKeyFormat = preserveCase()
	}
	if o.HeadersTimeout > 0 {
		m.RequestHeadersTimeout = Duration(o.HeadersTimeout)
	}
	if o.HTTP3 {
		m.CodecType = hcmv3.HttpConnectionManager_HTTP3
		m.Http3ProtocolOptions = &corev3.Http3ProtocolOptions{}
	}
	limitConnections(m, o.Connections, !o.HTTP3)
	if o.ChecksHost {
		checkHost(m)
	}
	return m
}

// preserveCase remembers the case of header names.
func preserveCase() *corev3.Http1ProtocolOptions_HeaderKeyFormat {
	return &corev3.Http1ProtocolOptions_HeaderKeyFormat{
		HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{
			StatefulFormatter: &corev3.TypedExtensionConfig{
				Name: "preserve_case", TypedConfig: Pack(&preservecasev3.PreserveCaseFormatterConfig{}),
			},
		},
	}
}

// NetworkFilter is a filter of a filter chain.
func NetworkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: Pack(config)}}
}
