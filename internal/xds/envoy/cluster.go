package envoy

import (
	"math"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	dnsfamilyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// EDSCluster is a cluster that gets its endpoints from this stream, under its own name.
func EDSCluster(name string, timeout time.Duration) *clusterv3.Cluster {
	c := cluster(name, timeout)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ADS(), ServiceName: name}
	return c
}

// dnsClusterType is the extension that resolves names. The same options of the built-in types are deprecated.
const dnsClusterType = "envoy.cluster.dns"

// DNSOptions say how Envoy resolves names.
type DNSOptions struct {
	// Refresh is the time after which a name without a TTL is resolved again.
	Refresh time.Duration
	// One uses one address at a time.
	One bool
	// Families are the IP versions of the proxy's addresses: it asks for addresses of IPv6 only if it has no others, and for both versions in a
	// dual-stack mesh.
	Families mesh.Families
}

// DNSCluster is a cluster whose endpoints are names that Envoy resolves.
func DNSCluster(name string, timeout time.Duration, o DNSOptions, endpoints *endpointv3.ClusterLoadAssignment) *clusterv3.Cluster {
	family := dnsfamilyv3.DnsLookupFamily_V4_ONLY
	switch o.Families {
	case mesh.OnlyIPv6:
		family = dnsfamilyv3.DnsLookupFamily_V6_ONLY
	case mesh.DualStack:
		family = dnsfamilyv3.DnsLookupFamily_ALL
	case mesh.OnlyIPv4, mesh.BothFamilies:
	}
	c := cluster(name, timeout)
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: dnsClusterType,
		TypedConfig: Pack(&dnsv3.DnsCluster{
			DnsRefreshRate: Duration(o.Refresh), RespectDnsTtl: true, DnsJitter: Duration(dnsJitter),
			DnsLookupFamily: family, AllAddressesInSingleEndpoint: o.One,
		}),
	}}
	c.LoadAssignment = endpoints
	return c
}

// dnsJitter spreads the queries of proxies that were started at the same time.
const dnsJitter = 100 * time.Millisecond

// StaticCluster is a cluster with one fixed address.
func StaticCluster(name string, timeout time.Duration, at *corev3.Address) *clusterv3.Cluster {
	c := cluster(name, timeout)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}},
		}}}},
	}
	return c
}

// OriginalDestinationCluster is a cluster that connects to the address that the client dialled.
func OriginalDestinationCluster(name string, timeout time.Duration) *clusterv3.Cluster {
	c := cluster(name, timeout)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	return c
}

// OverridePort makes such a cluster connect to another port than the client dialled.
func OverridePort(c *clusterv3.Cluster, port uint32) {
	c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
		OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{UpstreamPortOverride: Uint(port)},
	}
}

// EmptyCluster is a cluster without endpoints: Envoy refuses requests to it.
func EmptyCluster(name string, timeout time.Duration) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       Duration(timeout),
	}
}

func cluster(name string, timeout time.Duration) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:           name,
		ConnectTimeout: Duration(timeout),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
			unlimited(),
		}},
	}
}

// unlimited are thresholds that are never reached. Only users set limits.
func unlimited() *clusterv3.CircuitBreakers_Thresholds {
	return &clusterv3.CircuitBreakers_Thresholds{
		MaxConnections:     Uint(math.MaxUint32),
		MaxPendingRequests: Uint(math.MaxUint32),
		MaxRequests:        Uint(math.MaxUint32),
		MaxRetries:         Uint(math.MaxUint32),
		TrackRemaining:     true,
	}
}

// BindInbound makes a cluster connect to the application from an address whose connections are not redirected.
func BindInbound(c *clusterv3.Cluster, f mesh.Families) {
	source := func(ip string) *corev3.SocketAddress {
		return &corev3.SocketAddress{Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0}}
	}
	from := inboundSource
	if f == mesh.OnlyIPv6 {
		from = inboundSourceIPv6
	}
	c.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: source(from)}
	if f == mesh.DualStack {
		c.UpstreamBindConfig.ExtraSourceAddresses = []*corev3.ExtraSourceAddress{{Address: source(inboundSourceIPv6)}}
	}
}

// The addresses from which a proxy connects to its application.
const (
	inboundSource     = "127.0.0.6"
	inboundSourceIPv6 = "::6"
)
