package boot

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	brotliv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/brotli/compressor/v3"
	gzipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/compressor/v3"
	zstdv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/zstd/compressor/v3"
	compressorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
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
	d := envoy.StaticCluster(discoveryCluster, connectTimeout, envoy.Pipe(c.Relay))
	http2(d, &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
		Interval: envoy.Duration(keepAliveEvery), Timeout: envoy.Duration(keepAliveTimeout),
	}})
	return d
}

// secrets returns the cluster of the SDS server, which is the agent unless another server is configured. Clusters from the
// control plane refer to it, so it must exist even while no server runs. Connections that need a certificate then fail; they are
// never made without one.
func secrets(socket string) *clusterv3.Cluster {
	c := envoy.StaticCluster(secretsCluster, connectTimeout, envoy.Pipe(socket))
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

// page is a listener that forwards one path to a cluster. asks is the path that it has there; empty for the same one.
type page struct {
	prefix, path, cluster, asks string
	port                        uint32
	// secure asks clients for a certificate of the mesh, compressed compresses the answers, and proxyProtocol accepts PROXY protocol.
	// local makes it listen on loopback only.
	secure, compressed, proxyProtocol, local bool
}

// listener returns the listener of a page.
func (c Config) listener(p page) *listenerv3.Listener {
	action := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: p.cluster}}
	if p.asks != "" {
		action.PrefixRewrite = p.asks
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "localhost"} // the agent may answer to no other name
	}
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: p.prefix,
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			VirtualHosts: []*routev3.VirtualHost{{
				Name: "backend", Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: p.path}},
					Action: &routev3.Route_Route{Route: action},
				}},
			}},
		}},
	}
	if p.compressed {
		manager.HttpFilters = compressors()
	}
	manager.HttpFilters = append(manager.HttpFilters, envoy.HTTPFilter("envoy.filters.http.router", &routerv3.Router{}))
	chain := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{envoy.NetworkFilter("envoy.filters.network.http_connection_manager", manager)}}
	if p.secure {
		chain.TransportSocket = envoy.ServerTLS{Mesh: true}.TransportSocket()
	}
	wildcard, other := c.wildcard(), "::"
	if p.local {
		wildcard, other = c.loopback(), "::1"
	}
	l := &listenerv3.Listener{
		Name: p.prefix, StatPrefix: p.prefix,
		Address: envoy.Address(wildcard, p.port),
		// A global connection limit must not affect probes and scrapes.
		IgnoreGlobalConnLimit: true,
		FilterChains:          []*listenerv3.FilterChain{chain},
	}
	if c.DualStack {
		l.AdditionalAddresses = []*listenerv3.AdditionalAddress{{Address: envoy.Address(other, p.port)}}
	}
	if p.proxyProtocol {
		l.ListenerFilters = []*listenerv3.ListenerFilter{{
			Name: "envoy.filters.listener.proxy_protocol",
			// Probes of the kubelet come without it.
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: envoy.Pack(&proxyprotocolv3.ProxyProtocol{AllowRequestsWithoutProxyProtocol: true})},
		}}
	}
	return l
}

// compressors compress answers for clients that accept it. Envoy uses the first that the client prefers.
func compressors() (list []*hcmv3.HttpFilter) {
	for _, library := range []struct {
		name   string
		config proto.Message
	}{{"brotli", &brotliv3.Brotli{}}, {"zstd", &zstdv3.Zstd{}}, {"gzip", &gzipv3.Gzip{}}} {
		list = append(list, envoy.HTTPFilter("envoy.filters.http.compressor."+library.name, &compressorv3.Compressor{
			CompressorLibrary: &corev3.TypedExtensionConfig{Name: library.name, TypedConfig: envoy.Pack(library.config)},
		}))
	}
	return list
}
