package boot

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Timeouts for connecting, and the backoff for reconnecting: short at first, and limited so that a control plane that is back
// does not wait long for its proxies. Envoy adds jitter below these values.
const (
	connectTimeout      = time.Second
	localConnectTimeout = 250 * time.Millisecond
	reconnectFirst      = 200 * time.Millisecond
	reconnectLongest    = 10 * time.Second
)

// Keepalive settings: Envoy detects a silent control plane after keepAliveEvery + keepAliveTimeout.
const (
	keepAliveEvery   = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// discovery returns the cluster of the control plane, which uses HTTP/2 without TLS. The agent adds TLS behind the socket of the relay.
func (c Config) discovery() *clusterv3.Cluster {
	d := envoy.StaticCluster(DiscoveryCluster, connectTimeout, envoy.Pipe(c.Relay))
	http2(d, &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
		Interval: envoy.Duration(keepAliveEvery), Timeout: envoy.Duration(keepAliveTimeout),
	}})
	return d
}

// secrets returns the cluster of the SDS server, which is the agent unless another server is configured. Clusters from the
// control plane refer to it, so it must exist even while no server runs. Connections that need a certificate then fail; they are
// never made without one.
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

// listener returns a listener that forwards one path to a cluster.
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
		// A global connection limit must not affect probes and scrapes.
		IgnoreGlobalConnLimit: true,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Pack(manager)},
		}}}},
	}
}
