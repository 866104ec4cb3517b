package envoy

import (
	"math"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// httpOptionsKey is where a cluster carries its HTTP options.
const httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// EDSCluster is a cluster that fetches its endpoints from this stream, under its own name.
func EDSCluster(name string, timeout time.Duration) *clusterv3.Cluster {
	c := cluster(name, timeout)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ADS(), ServiceName: name}
	return c
}

// DNSCluster is a cluster whose endpoints are names that Envoy resolves; logical: it uses one address at a time.
func DNSCluster(name string, timeout time.Duration, logical bool, endpoints *endpointv3.ClusterLoadAssignment) *clusterv3.Cluster {
	c := cluster(name, timeout)
	kind := clusterv3.Cluster_STRICT_DNS
	if logical {
		kind = clusterv3.Cluster_LOGICAL_DNS
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	c.DnsLookupFamily = clusterv3.Cluster_V4_ONLY
	c.RespectDnsTtl = true
	c.LoadAssignment = endpoints
	return c
}

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

// OriginalDestinationCluster is a cluster that connects to where the client was going.
func OriginalDestinationCluster(name string, timeout time.Duration) *clusterv3.Cluster {
	c := cluster(name, timeout)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	return c
}

// EmptyCluster is a cluster without endpoints: what is sent there is refused.
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
			Unlimited(),
		}},
	}
}

// Unlimited are thresholds that nothing reaches: limits are the user's to set.
func Unlimited() *clusterv3.CircuitBreakers_Thresholds {
	return &clusterv3.CircuitBreakers_Thresholds{
		MaxConnections:     Uint(math.MaxUint32),
		MaxPendingRequests: Uint(math.MaxUint32),
		MaxRequests:        Uint(math.MaxUint32),
		MaxRetries:         Uint(math.MaxUint32),
		TrackRemaining:     true,
	}
}

// BindSource makes a cluster connect from a given local address.
func BindSource(c *clusterv3.Cluster, ip string) {
	c.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{
		Address:       ip,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
	}}
}

// Upstream is which HTTP a cluster speaks.
type Upstream uint8

// The kinds of upstream.
const (
	// UpstreamHTTP1 is the default; a cluster says nothing for it.
	UpstreamHTTP1 Upstream = iota
	// UpstreamHTTP2 is HTTP/2 without negotiation.
	UpstreamHTTP2
	// UpstreamAsDownstream speaks what the client spoke.
	UpstreamAsDownstream
)

// SetHTTP sets how a cluster speaks HTTP. common may be nil.
func SetHTTP(c *clusterv3.Cluster, u Upstream, common *corev3.HttpProtocolOptions) {
	if u == UpstreamHTTP1 && common == nil {
		return
	}
	o := &httpv3.HttpProtocolOptions{CommonHttpProtocolOptions: common}
	switch u {
	case UpstreamHTTP1:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
				},
			},
		}
	case UpstreamHTTP2:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
				},
			},
		}
	case UpstreamAsDownstream:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions:  &corev3.Http1ProtocolOptions{},
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		}
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsKey: Pack(o)}
}

// Endpoint is one place to connect to.
type Endpoint struct {
	*mesh.Endpoint
	Port uint32
}

// Assignment lists endpoints, which must be sorted by locality. Each locality weighs what its endpoints weigh. Envoy
// refuses weights whose sum does not fit 32 bits: they are scaled down.
func Assignment(name string, endpoints []Endpoint) *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	shift := weightShift(endpoints)
	var group *endpointv3.LocalityLbEndpoints
	for i, e := range endpoints {
		if i == 0 || e.Locality != endpoints[i-1].Locality {
			group = &endpointv3.LocalityLbEndpoints{LoadBalancingWeight: Uint(0)}
			if e.Locality != (mesh.Locality{}) {
				group.Locality = &corev3.Locality{Region: e.Locality.Region, Zone: e.Locality.Zone, SubZone: e.Locality.SubZone}
			}
			a.Endpoints = append(a.Endpoints, group)
		}
		weight := max(e.Weight>>shift, 1)
		at := Address(e.Address, e.Port)
		if path, ok := e.UnixPath(); ok {
			at = Pipe(path)
		}
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}},
			LoadBalancingWeight: Uint(weight),
		})
		group.LoadBalancingWeight.Value += weight
	}
	return a
}

// weightShift is by how many bits weights must shrink for their sum to fit.
func weightShift(endpoints []Endpoint) int {
	sum := uint64(len(endpoints)) // none ends below 1
	for _, e := range endpoints {
		sum += uint64(e.Weight)
	}
	shift := 0
	for sum>>shift > math.MaxUint32 {
		shift++
	}
	return shift
}
