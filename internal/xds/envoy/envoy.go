// Package envoy has the names and the message constructors of what Envoy is sent.
//
// It decides nothing: which clusters exist, which route wins and what a proxy sees is decided before these functions are
// called. Constructors are pure and deterministic, and the caller owns their results. The package starts no
// goroutines. It exports more than 60 names, because every kind of message that Envoy is sent has its constructor here.
package envoy

import (
	"net/netip"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// Names of clusters that represent a decision instead of a service.
const (
	PassthroughCluster        = "PassthroughCluster"
	BlackHoleCluster          = "BlackHoleCluster"
	InboundPassthroughCluster = "InboundPassthroughCluster"
	// DynamicDNSCluster connects to the host that a request names.
	DynamicDNSCluster = "AllowAnyDynamicDNSCluster"
)

// Names of listeners, filter chains and virtual hosts that every sidecar has.
const (
	VirtualOutbound  = "virtualOutbound"
	VirtualInbound   = "virtualInbound"
	InboundBlackhole = "virtualInbound-blackhole" // the chain for connections to the port of the listener itself
	PassthroughChain = "PassthroughFilterChain"
	AllowAny         = "allow_any"
	BlockAll         = "block_all"
	AllowAnyByName   = "allow_any_dynamic_dns"
	Wildcard         = "0.0.0.0"
	Loopback         = mesh.Loopback
	wildcardIPv6     = "::"
	LoopbackIPv6     = "::1"
)

// WildcardOf is the address by which a listener of a proxy is at any address. If the proxy has addresses of both families, a
// listener for the port of a service has a second address (see AddFamily). The listeners that take all connections have it in a dual-stack mesh
// only: elsewhere, what comes by IPv6 for no service is refused.
func WildcardOf(f mesh.Families) string {
	if f == mesh.OnlyIPv6 {
		return wildcardIPv6
	}
	return Wildcard
}

// LoopbackOf is the loopback address of a proxy.
func LoopbackOf(f mesh.Families) string {
	if f == mesh.OnlyIPv6 {
		return LoopbackIPv6
	}
	return Loopback
}

// OutboundCluster is the name of the cluster of a service's port and subset.
func OutboundCluster(port uint32, subset, host string) string {
	return "outbound|" + number(port) + "|" + subset + "|" + host
}

// ServerName is the SNI by which a client of the mesh requests a service's port and subset.
func ServerName(port uint32, subset, host string) string {
	return "outbound_." + number(port) + "_." + subset + "_." + host
}

// InboundCluster is the name of the cluster for a port of the proxy's own workload.
func InboundCluster(port uint32) string { return "inbound|" + number(port) + "||" }

// ListenerName is the name of a listener at an address.
func ListenerName(ip string, port uint32) string { return ip + "_" + number(port) }

// RouteName is the name of the route configuration of an HTTP port.
func RouteName(port uint32) string { return number(port) }

// SniffedRouteName is the name of the route configuration of a port with protocol detection at addresses of a host's own.
func SniffedRouteName(host string, port uint32) string { return host + ":" + number(port) }

// ProxyRouteName is the name of the route configuration of an HTTP proxy. Number 0 is the mesh's.
func ProxyRouteName(n int) string {
	if n == 0 {
		return "http_proxy"
	}
	return "http_proxy_" + strconv.Itoa(n)
}

// VirtualHostName is the name of a host's virtual host on a port.
func VirtualHostName(host string, port uint32) string { return host + ":" + number(port) }

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// AddressDomain is an IP address as a client writes it in the Host header.
func AddressDomain(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return "[" + ip + "]"
	}
	return ip
}

// Pack encodes a message deterministically as an Any. It panics if the message holds text that is not UTF-8, as encoding
// the resource around it would.
func Pack(m proto.Message) *anypb.Any {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}

// Address is a TCP address.
func Address(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       ip,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// Pipe is the address of a Unix domain socket.
func Pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

// ADS is the configuration source for resources that come on this stream. Envoy waits for them without a timeout.
func ADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   Duration(0),
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

func socket(name string, config proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: Pack(config)}}
}

// Duration is d as a message.
func Duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// Uint is n as a message.
func Uint(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }

// Bool is b as a message.
func Bool(b bool) *wrapperspb.BoolValue { return wrapperspb.Bool(b) }

// Metadata is metadata in the namespace of Istio, which dashboards and filters made for Istio read.
func Metadata(fields map[string]*structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: fields}}}
}

// ServiceMetadata names the service that a resource is about.
func ServiceMetadata(host, name, namespace string) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"host":      structpb.NewStringValue(host),
			"name":      structpb.NewStringValue(name),
			"namespace": structpb.NewStringValue(namespace),
		}}),
	}})
}
