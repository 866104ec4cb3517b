package boot

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// How long connecting may take, and how a lost stream is tried again: soon at first, and not so late that a control
// plane that is back waits for its proxies. Envoy spreads the attempts at random below these.
const (
	connectTimeout      = time.Second
	localConnectTimeout = 250 * time.Millisecond
	reconnectFirst      = 200 * time.Millisecond
	reconnectLongest    = 10 * time.Second
)

// A control plane that vanished without a word is noticed after keepAliveEvery + keepAliveTimeout.
const (
	keepAliveEvery   = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// discovery is the control plane, in plaintext HTTP/2.
func (c Config) discovery() *clusterv3.Cluster {
	d := envoy.StaticCluster(DiscoveryCluster, connectTimeout, envoy.Address(c.Discovery.Host, c.Discovery.Port))
	if _, err := netip.ParseAddr(c.Discovery.Host); err != nil {
		d.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
		d.DnsLookupFamily = clusterv3.Cluster_V4_PREFERRED
		if c.IPv6 {
			d.DnsLookupFamily = clusterv3.Cluster_V6_ONLY
		}
	}
	http2(d, &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
		Interval: envoy.Duration(keepAliveEvery), Timeout: envoy.Duration(keepAliveTimeout),
	}})
	return d
}

// secrets is whoever serves certificates and keys: the agent, if nobody else is named. Clusters from the control plane
// name it, so it must be there even while nobody serves: connections that need a certificate then fail, and never go out
// without.
func secrets(socket string) *clusterv3.Cluster {
	c := envoy.StaticCluster(SecretsCluster, connectTimeout, envoy.Pipe(socket))
	http2(c, &corev3.Http2ProtocolOptions{})
	return c
}

func local(name, loopback string, port uint32) *clusterv3.Cluster {
	return envoy.StaticCluster(name, localConnectTimeout, envoy.Address(loopback, port))
}

func http2(c *clusterv3.Cluster, o *corev3.Http2ProtocolOptions) {
	options := &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: o},
		},
	}}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoy.Pack(options),
	}
}

// listener serves one path, from a cluster.
func (c Config) listener(prefix string, port uint32, path, cluster string) *listenerv3.Listener {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: prefix,
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			VirtualHosts: []*routev3.VirtualHost{{
				Name: "backend", Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: path}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
				}},
			}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: envoy.Pack(&routerv3.Router{})},
		}},
	}
	return &listenerv3.Listener{
		Name: prefix, StatPrefix: prefix,
		Address: envoy.Address(c.wildcard(), port),
		// Probes and scrapes are not held against a limit of connections.
		IgnoreGlobalConnLimit: true,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Pack(manager)},
		}}}},
	}
}

// statsConfig turns the parts of statistics' names that say what they are about into labels. The names of clusters and
// listeners from the control plane hold dots and end with a semicolon; others have neither.
func statsConfig() *metricsv3.StatsConfig {
	config := &metricsv3.StatsConfig{UseAllDefaultTags: envoy.Bool(false)}
	for _, t := range []struct{ name, regex string }{
		{"cluster_name", `^cluster\.(([^;.|]+|[^;]+);?\.)`},
		{"http_conn_manager_prefix", `^http\.(([^.;]+(?:\.\d+)*(?:_\d+)?);?\.)`},
		{"tcp_prefix", `^tcp\.(([^;.|]+|[^;]+);?\.)`},
		{"listener_address", `^listener\.(([0-9a-fA-F_.\[\]]+_\d+)\.)`},
		{"http_conn_manager_listener_prefix", `^listener\..*?\.http\.(([^.;]+(?:\.\d+)*(?:_\d+)?);?\.)`},
		{"response_code", `_rq(_(\d{3}))$`},
		{"response_code_class", `_rq(_(\dxx))$`},
	} {
		config.StatsTags = append(config.StatsTags, &metricsv3.TagSpecifier{
			TagName: t.name, TagValue: &metricsv3.TagSpecifier_Regex{Regex: t.regex},
		})
	}
	return config
}
