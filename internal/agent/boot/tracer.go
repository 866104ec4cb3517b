package boot

import (
	"net"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// TracerKind is a protocol in which Envoy sends spans.
type TracerKind int

// The kinds of tracers.
const (
	NoTracer TracerKind = iota
	Zipkin
	Datadog
	// OpenTelemetry sends spans by OTLP over gRPC.
	OpenTelemetry
)

// Tracer receives the spans of listeners that the control plane configures to trace without naming a tracer.
type Tracer struct {
	Kind    TracerKind
	Backend Backend
	// AccessToken is sent with the spans, in the header lightstep-access-token; empty for none.
	AccessToken string
}

// zipkinPath is the path at which a Zipkin collector accepts spans in version 2 of its JSON format.
const zipkinPath = "/api/v2/spans"

// tracing returns the tracer of the bootstrap; nil for none. Envoy has deprecated the field in favour of a tracer in each listener, but it is
// where listeners of Istio's architecture expect the tracer of a proxy's own settings.
func (c Config) tracing() *tracev3.Tracing {
	t := c.Tracer
	var name string
	var config proto.Message
	switch t.Kind {
	case NoTracer:
		return nil
	case Zipkin:
		name, config = "envoy.tracers.zipkin", &tracev3.ZipkinConfig{
			CollectorCluster: zipkinCluster, CollectorEndpoint: zipkinPath, CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON,
			CollectorHostname: net.JoinHostPort(t.Backend.Host, strconv.Itoa(int(t.Backend.Port))),
			// Client and server have a span each, and trace identifiers have 128 bits, as in W3C Trace Context.
			TraceId_128Bit: true, SharedSpanContext: wrapperspb.Bool(false),
		}
	case Datadog:
		name, config = "envoy.tracers.datadog", &tracev3.DatadogConfig{CollectorCluster: datadogCluster, ServiceName: c.Node.GetCluster()}
	case OpenTelemetry:
		s := service(openTelemetryCluster)
		if t.AccessToken != "" {
			s.InitialMetadata = []*corev3.HeaderValue{{Key: "lightstep-access-token", Value: t.AccessToken}}
		}
		name, config = "envoy.tracers.opentelemetry", &tracev3.OpenTelemetryConfig{GrpcService: s, ServiceName: c.Node.GetCluster()}
	}
	return &tracev3.Tracing{Http: &tracev3.Tracing_Http{Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: envoy.Pack(config)}}}
}
