package boot

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Names of the clusters of backends. They are Istio's, because access logs that the control plane configures refer to some of them.
const (
	zipkinCluster         = "zipkin"
	datadogCluster        = "datadog_agent"
	openTelemetryCluster  = "lightstep"
	metricsServiceCluster = "envoy_metrics_service"
	accessLogCluster      = "envoy_accesslog_service"
)

// Backend is a server to which Envoy sends spans, statistics or access logs. The zero value is none.
type Backend struct {
	// Host is a DNS name or an IP address.
	Host string
	Port uint32
	// TLS is how Envoy calls it; nil for plaintext.
	TLS *envoy.ClientTLS
	// KeepAlive sets TCP keepalive probes of connections to it; nil for none.
	KeepAlive *corev3.TcpKeepalive
}

// ParseBackend returns the backend at host:port.
func ParseBackend(address string) (Backend, error) {
	host, text, err := net.SplitHostPort(address)
	port, convErr := strconv.ParseUint(text, 10, 16)
	if err != nil || convErr != nil || host == "" || port == 0 {
		return Backend{}, fmt.Errorf("%q is not host:port", address)
	}
	return Backend{Host: host, Port: uint32(port)}, nil
}

func (b Backend) set() bool { return b.Host != "" }

// dnsRefresh is how often the name of a backend is resolved if its DNS server sets no TTL.
const dnsRefresh = time.Minute

// cluster returns the cluster of a backend.
func (b Backend) cluster(name string, ipv6 bool) *clusterv3.Cluster {
	at := envoy.Address(b.Host, b.Port)
	c := envoy.StaticCluster(name, connectTimeout, at)
	if _, err := netip.ParseAddr(b.Host); err != nil {
		families := mesh.OnlyIPv4
		if ipv6 {
			families = mesh.OnlyIPv6
		}
		c = envoy.DNSCluster(name, connectTimeout, envoy.DNSOptions{Refresh: dnsRefresh, Families: families}, &endpointv3.ClusterLoadAssignment{
			ClusterName: name, Endpoints: c.GetLoadAssignment().GetEndpoints(),
		})
	}
	if b.TLS != nil {
		envoy.UseTLS(c, *b.TLS)
	}
	if b.KeepAlive != nil {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: b.KeepAlive}
	}
	return c
}

// grpcCluster returns the cluster of a backend that is called by gRPC.
func (b Backend) grpcCluster(name string, ipv6 bool) *clusterv3.Cluster {
	c := b.cluster(name, ipv6)
	http2(c, &corev3.Http2ProtocolOptions{})
	return c
}

// service is the gRPC service of a cluster.
func service(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster}}}
}

// backends returns the clusters of all backends.
func (c Config) backends() (list []*clusterv3.Cluster) {
	switch t := c.Tracer; t.Kind {
	case NoTracer:
	case Zipkin:
		list = append(list, t.Backend.cluster(zipkinCluster, c.IPv6))
	case Datadog:
		list = append(list, t.Backend.cluster(datadogCluster, c.IPv6))
	case OpenTelemetry:
		list = append(list, t.Backend.grpcCluster(openTelemetryCluster, c.IPv6))
	}
	if c.Stats.Service.set() {
		list = append(list, c.Stats.Service.grpcCluster(metricsServiceCluster, c.IPv6))
	}
	if c.AccessLogs.set() {
		list = append(list, c.AccessLogs.grpcCluster(accessLogCluster, c.IPv6))
	}
	return list
}
