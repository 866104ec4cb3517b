// Package envoy has the names and the proto constructors of what Envoy is told.
//
// It decides nothing: which clusters exist, which route wins and what a proxy may see is settled before these functions
// are called. Constructors are pure and deterministic, and what they return belongs to the caller. The package starts no
// goroutines and imports mesh and Envoy's protos only, never views, state, store or a translator.
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

// Names of clusters that stand for a decision rather than a service.
const (
	PassthroughCluster        = "PassthroughCluster"
	BlackHoleCluster          = "BlackHoleCluster"
	InboundPassthroughCluster = "InboundPassthroughCluster"
	// DynamicDNSCluster connects to the host a request asks for.
	DynamicDNSCluster = "AllowAnyDynamicDNSCluster"
)

// Names of listeners, filter chains and virtual hosts that every sidecar has.
const (
	VirtualOutbound    = "virtualOutbound"
	VirtualInbound     = "virtualInbound"
	PassthroughChain   = "PassthroughFilterChain"
	AllowAny           = "allow_any"
	BlockAll           = "block_all"
	AllowAnyByName     = "allow_any_dynamic_dns"
	OutboundPort       = mesh.ProxyOutboundPort
	InboundPort        = mesh.ProxyInboundPort
	Wildcard           = "0.0.0.0"
	Loopback           = mesh.Loopback
	InboundBindAddress = "127.0.0.6"
)

// OutboundCluster is the name of the cluster of a service's port and subset.
func OutboundCluster(port uint32, subset, host string) string {
	return "outbound|" + number(port) + "|" + subset + "|" + host
}

// ServerName is the name by which a client of the mesh asks for a service's port and subset in a TLS handshake.
func ServerName(port uint32, subset, host string) string {
	return "outbound_." + number(port) + "_." + subset + "_." + host
}

// InboundCluster is the name of the cluster of a port of the proxy's own workload.
func InboundCluster(port uint32) string { return "inbound|" + number(port) + "||" }

// ListenerName is the name of a listener at an address.
func ListenerName(ip string, port uint32) string { return ip + "_" + number(port) }

// RouteName is the name of the route configuration of an HTTP port.
func RouteName(port uint32) string { return number(port) }

// SniffedRouteName is the name of the route configuration of a host's sniffed port, at addresses of its own.
func SniffedRouteName(host string, port uint32) string { return host + ":" + number(port) }

// ProxyRouteName is the name of the route configuration of an HTTP proxy: the mesh's is number 0.
func ProxyRouteName(n int) string {
	if n == 0 {
		return "http_proxy"
	}
	return "http_proxy_" + strconv.Itoa(n)
}

// VirtualHostName is the name of a host's virtual host on a port.
func VirtualHostName(host string, port uint32) string { return host + ":" + number(port) }

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// Domain is an address as a client writes it in the Host header.
func Domain(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return "[" + ip + "]"
	}
	return ip
}

// Pack packs a message deterministically. It panics if it cannot be encoded (text that is not UTF-8), as encoding the
// resource around it would.
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

// ADS is the configuration source that is this stream. Envoy waits for the resource as long as it takes.
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

// Metadata is what dashboards and filters know Istio's metadata by.
func Metadata(fields map[string]*structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: fields}}}
}

// ServiceMetadata says which service something is about.
func ServiceMetadata(host, name, namespace string) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"host":      structpb.NewStringValue(host),
			"name":      structpb.NewStringValue(name),
			"namespace": structpb.NewStringValue(namespace),
		}}),
	}})
}
