package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	dynamicfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	snidynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
)

const (
	dynamicFilter    = "envoy.filters.http.dynamic_forward_proxy"
	sniDynamicFilter = "envoy.filters.network.sni_dynamic_forward_proxy"
	dynamicCluster   = "envoy.clusters.dynamic_forward_proxy"
)

// maxDynamicHosts bounds how many requested names Envoy resolves at a time.
const maxDynamicHosts = 1024

// dynamicDNS is the DNS cache for requested names. Envoy demands that all users of the cache configure it alike.
func dynamicDNS(f mesh.Families) *dnsv3.DnsCacheConfig {
	c := &dnsv3.DnsCacheConfig{Name: "dynamic_dns", DnsLookupFamily: clusterv3.Cluster_V4_ONLY, MaxHosts: Uint(maxDynamicHosts)}
	switch f {
	case mesh.OnlyIPv6:
		c.DnsLookupFamily = clusterv3.Cluster_V6_ONLY
	case mesh.DualStack:
		c.DnsLookupFamily = clusterv3.Cluster_ALL
	case mesh.OnlyIPv4, mesh.BothFamilies:
	}
	return c
}

// DynamicCluster is a cluster that connects to the host that a request names, or to the SNI of a TLS connection.
func DynamicCluster(name string, timeout time.Duration, f mesh.Families) *clusterv3.Cluster {
	c := cluster(name, timeout)
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: dynamicCluster,
		TypedConfig: Pack(&dynamicv3.ClusterConfig{
			ClusterImplementationSpecifier: &dynamicv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: dynamicDNS(f)},
			// Without this, Envoy demands TLS options for the cluster, even if it does not speak TLS.
			AllowInsecureClusterOptions: true,
		}),
	}}
	return c
}

// dynamicHTTPFilter resolves the host of requests that are routed to a dynamic cluster. It does nothing for others.
func dynamicHTTPFilter(f mesh.Families) *hcmv3.HttpFilter {
	return HTTPFilter(dynamicFilter, &dynamicfilterv3.FilterConfig{
		ImplementationSpecifier: &dynamicfilterv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: dynamicDNS(f)},
	})
}

// SNIForwardProxy is the filter that resolves the SNI of a TLS connection. It must come before the filter that forwards
// to a dynamic cluster.
func SNIForwardProxy(port uint32, f mesh.Families) *listenerv3.Filter {
	return NetworkFilter(sniDynamicFilter, &snidynamicv3.FilterConfig{
		DnsCacheConfig: dynamicDNS(f),
		PortSpecifier:  &snidynamicv3.FilterConfig_PortValue{PortValue: port},
	})
}
