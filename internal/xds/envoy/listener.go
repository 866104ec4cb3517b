package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
)

// Names of filters.
const (
	hcmFilter           = "envoy.filters.network.http_connection_manager"
	tcpProxyFilter      = "envoy.filters.network.tcp_proxy"
	httpInspectorFilter = "envoy.filters.listener.http_inspector"
	originalDstFilter   = "envoy.filters.listener.original_dst"
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

// Sniff makes a listener look at the first bytes to tell HTTP, waiting for them as long as it takes. If ports are given,
// it does so only for connections to those: where the server speaks first there would be nothing to see.
func Sniff(l *listenerv3.Listener, ports ...uint32) {
	f := &listenerv3.ListenerFilter{
		Name:       httpInspectorFilter,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: Pack(&httpinspectorv3.HttpInspector{})},
	}
	if len(ports) > 0 {
		f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: anyPort(ports)},
		}
	}
	l.ListenerFilters = append(l.ListenerFilters, f)
	l.ListenerFiltersTimeout = Duration(0)
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

// Chain is a filter chain; a nil match takes everything.
func Chain(name string, match *listenerv3.FilterChainMatch, filter *listenerv3.Filter) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Name: name, FilterChainMatch: match, Filters: []*listenerv3.Filter{filter}}
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

// Prefix is a block of addresses.
func Prefix(ip string, bits uint32) *corev3.CidrRange {
	return &corev3.CidrRange{AddressPrefix: ip, PrefixLen: Uint(bits)}
}

// TCPProxy forwards connections to a cluster.
func TCPProxy(stat, cluster string) *listenerv3.Filter {
	return networkFilter(tcpProxyFilter, &tcpproxyv3.TcpProxy{
		StatPrefix:       stat,
		ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: cluster},
	})
}

// HTTPByName serves HTTP by a route configuration that is fetched from this stream.
func HTTPByName(stat, route string) *listenerv3.Filter {
	m := connectionManager(stat)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ADS(), RouteConfigName: route}}
	return networkFilter(hcmFilter, m)
}

// HTTPTo serves HTTP by a route configuration of its own.
func HTTPTo(stat string, routes *routev3.RouteConfiguration) *listenerv3.Filter {
	m := connectionManager(stat)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	m.ServerName = "istio-envoy"
	return networkFilter(hcmFilter, m)
}

func connectionManager(stat string) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:        stat,
		CodecType:         hcmv3.HttpConnectionManager_AUTO,
		UseRemoteAddress:  Bool(false),
		NormalizePath:     Bool(true),
		StreamIdleTimeout: Duration(0),
		UpgradeConfigs:    []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		HttpFilters:       httpFilters(),
	}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: Pack(config)}}
}
