package telemetry

import (
	"cmp"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/state/provider"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// target is the service that a provider sends to.
type target struct{ cluster, host string }

// target returns the service of a provider, as the proxies of the key see it; false if they cannot reach it.
func (b builder) target(service string, port uint32) (target, bool) {
	to, trouble := b.q.scope.Backend(b.r, b.Hosts, service, port)
	return target{envoy.OutboundCluster(to.Port, "", to.Host), to.Host}, trouble == ""
}

// grpc returns the gRPC service of a provider; false if the proxies cannot reach it.
func (b builder) grpc(p *meshconfig.MeshConfig_ExtensionProvider) (*corev3.GrpcService, bool) {
	to, ok := b.target(provider.TelemetryService(p))
	return grpcCluster(to.cluster, to.host), ok
}

func grpcCluster(cluster, authority string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: authority},
	}}
}

// exportTimeout is how long a request to a collector may take if the provider sets no timeout.
const exportTimeout = 5 * time.Second

// http returns the HTTP service at a path of a service.
func (t target) http(path string, timeout *durationpb.Duration, headers []*meshconfig.MeshConfig_ExtensionProvider_HttpHeader) *corev3.HttpService {
	s := &corev3.HttpService{HttpUri: &corev3.HttpUri{
		Uri: "http://" + t.host + "/" + strings.TrimPrefix(path, "/"), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: t.cluster},
		Timeout: envoy.Duration(cmp.Or(timeout.AsDuration(), exportTimeout)),
	}}
	for _, h := range headers {
		if value, ok := headerOf(h); ok {
			s.RequestHeadersToAdd = append(s.RequestHeadersToAdd, &corev3.HeaderValueOption{
				Header: value, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			})
		}
	}
	return s
}

// headerOf returns a header of a provider. Its value is no format, so percent signs are doubled. It is false if the value is in a variable
// that the control plane does not have.
func headerOf(h *meshconfig.MeshConfig_ExtensionProvider_HttpHeader) (*corev3.HeaderValue, bool) {
	v, ok := h.GetHeaderValue().(*meshconfig.MeshConfig_ExtensionProvider_HttpHeader_Value)
	if !ok || h.GetName() == "" {
		return nil, false
	}
	return &corev3.HeaderValue{Key: h.GetName(), Value: strings.ReplaceAll(v.Value, "%", "%%")}, true
}

// environmentDetector adds the attributes in OTEL_RESOURCE_ATTRIBUTES, which agents set, to what an Envoy exports.
func environmentDetector() *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{
		Name: "envoy.tracers.opentelemetry.resource_detectors.environment", TypedConfig: envoy.Pack(&detectorsv3.EnvironmentResourceDetectorConfig{}),
	}
}

func dynatraceDetector() *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{
		Name: "envoy.tracers.opentelemetry.resource_detectors.dynatrace", TypedConfig: envoy.Pack(&detectorsv3.DynatraceResourceDetectorConfig{}),
	}
}
