package telemetry

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	samplersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state/provider"
	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Names of tracers.
const (
	zipkinTracer     = "envoy.tracers.zipkin"
	datadogTracer    = "envoy.tracers.datadog"
	skywalkingTracer = "envoy.tracers.skywalking"
	otelTracer       = "envoy.tracers.opentelemetry"
)

// datadogService is the name of the service in spans for Datadog. The variable DD_SERVICE of an Envoy goes before it; agents set that.
const datadogService = "envoy"

// tracer is a tracer of Envoy.
type tracer struct {
	name   string
	config proto.Message
	// maxPath is how long the path in a span may be; 0 if the provider does not say.
	maxPath uint32
	// samples is true if the tracer decides itself which requests are traced. client is true if it needs a span per upstream request.
	samples, client bool
}

// tracing returns how requests are traced; nil if the provider cannot be used.
func (b builder) tracing(v view.Traces) *hcmv3.HttpConnectionManager_Tracing {
	t := &hcmv3.HttpConnectionManager_Tracing{NoContextPropagation: v.Isolated, CustomTags: b.tags(v)}
	maxPath := v.MaxPath
	if v.Provider != "" {
		p, _ := b.q.tables.Telemetry.ProviderFor(b.r, v.Provider, provider.ForTraces)
		by, ok := b.tracer(p)
		if !ok {
			return nil
		}
		t.Provider = &tracev3.Tracing_Http{Name: by.name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: envoy.Pack(by.config)}}
		maxPath = cmp.Or(by.maxPath, maxPath)
		if by.samples {
			v.Sampling = 100
		}
		if by.client || b.Gateway {
			t.SpawnUpstreamSpan = envoy.Bool(true)
		}
	}
	t.ClientSampling, t.OverallSampling, t.RandomSampling = percent(100), percent(100), percent(v.Sampling)
	if maxPath != 0 {
		t.MaxPathTagLength = envoy.Uint(maxPath)
	}
	return t
}

func percent(n float64) *typev3.Percent { return &typev3.Percent{Value: n} }

// tracer returns the tracer of a provider; false if it cannot be used.
func (b builder) tracer(p *meshconfig.MeshConfig_ExtensionProvider) (tracer, bool) {
	to, ok := b.target(provider.TelemetryService(p))
	if !ok {
		return tracer{}, false
	}
	switch o := p.GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_Zipkin:
		return tracer{name: zipkinTracer, config: zipkin(o.Zipkin, to), maxPath: o.Zipkin.GetMaxTagLength()}, true
	case *meshconfig.MeshConfig_ExtensionProvider_Datadog:
		return tracer{name: datadogTracer, maxPath: o.Datadog.GetMaxTagLength(), config: &tracev3.DatadogConfig{
			CollectorCluster: to.cluster, CollectorHostname: to.host, ServiceName: datadogService,
		}}, true
	case *meshconfig.MeshConfig_ExtensionProvider_Skywalking:
		return tracer{name: skywalkingTracer, client: true, config: skywalking(o.Skywalking, to)}, true
	case *meshconfig.MeshConfig_ExtensionProvider_Opentelemetry:
		return b.openTelemetry(o.Opentelemetry, to)
	}
	return tracer{}, false
}

func zipkin(o *meshconfig.MeshConfig_ExtensionProvider_ZipkinTracingProvider, to target) *tracev3.ZipkinConfig {
	z := &tracev3.ZipkinConfig{
		CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON, TraceId_128Bit: !o.GetEnable_64BitTraceId(), SharedSpanContext: envoy.Bool(false),
		CollectorService: to.http(cmp.Or(o.GetPath(), "/api/v2/spans"), o.GetTimeout(), o.GetHeaders()),
	}
	if o.GetTraceContextOption() == meshconfig.MeshConfig_ExtensionProvider_ZipkinTracingProvider_USE_B3_WITH_W3C_PROPAGATION {
		z.TraceContextOption = tracev3.ZipkinConfig_USE_B3_WITH_W3C_PROPAGATION
	}
	return z
}

func skywalking(o *meshconfig.MeshConfig_ExtensionProvider_SkyWalkingTracingProvider, to target) *tracev3.SkyWalkingConfig {
	c := &tracev3.SkyWalkingConfig{GrpcService: grpcCluster(to.cluster, to.host)}
	if token := o.GetAccessToken(); token != "" {
		c.ClientConfig = &tracev3.ClientConfig{BackendTokenSpecifier: &tracev3.ClientConfig_BackendToken{BackendToken: token}}
	}
	return c
}

// openTelemetry returns the tracer for a collector of OpenTelemetry. Spans name their service by the environment of the Envoy.
func (b builder) openTelemetry(o *meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider, to target) (tracer, bool) {
	c := &tracev3.OpenTelemetryConfig{ResourceDetectors: []*corev3.TypedExtensionConfig{environmentDetector()}}
	if o.GetResourceDetectors().GetDynatrace() != nil {
		c.ResourceDetectors = append(c.ResourceDetectors, dynatraceDetector())
	}
	if h := o.GetHttp(); h != nil {
		c.HttpService = to.http(h.GetPath(), h.GetTimeout(), h.GetHeaders())
	} else {
		c.GrpcService = grpcCluster(to.cluster, to.host)
		c.GrpcService.Timeout = o.GetGrpc().GetTimeout()
		for _, h := range o.GetGrpc().GetInitialMetadata() {
			if value, ok := headerOf(h); ok {
				c.GrpcService.InitialMetadata = append(c.GrpcService.InitialMetadata, value)
			}
		}
	}
	t := tracer{name: otelTracer, config: c, maxPath: o.GetMaxTagLength()}
	sampler := o.GetDynatraceSampler()
	if sampler == nil {
		return t, true
	}
	from, ok := b.sampling(sampler, o.GetHttp(), to)
	c.Sampler = &corev3.TypedExtensionConfig{Name: "envoy.tracers.opentelemetry.samplers.dynatrace", TypedConfig: envoy.Pack(&samplersv3.DynatraceSamplerConfig{
		Tenant: sampler.GetTenant(), ClusterId: sampler.GetClusterId(), RootSpansPerMinute: sampler.GetRootSpansPerMinute(), HttpService: from,
	})}
	t.samples = true
	return t, ok
}

// sampling returns where the sampler of Dynatrace gets its settings: from a service of its own, or from the one that gets the spans over HTTP.
func (b builder) sampling(s *meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider_DynatraceSampler,
	spans *meshconfig.MeshConfig_ExtensionProvider_HttpService, to target,
) (*corev3.HttpService, bool) {
	if own := s.GetHttpService(); own != nil {
		to, ok := b.target(own.GetService(), own.GetPort())
		return to.http(own.GetHttp().GetPath(), own.GetHttp().GetTimeout(), own.GetHttp().GetHeaders()), ok
	}
	return to.http("/api/v2/samplingConfiguration", spans.GetTimeout(), spans.GetHeaders()), spans != nil
}

// ignoreRequestID makes request ids as Envoy does, and does not read from them whether a request is traced.
func ignoreRequestID() *hcmv3.RequestIDExtension {
	return &hcmv3.RequestIDExtension{TypedConfig: envoy.Pack(&uuidv3.UuidRequestIdConfig{UseRequestIdForTraceSampling: envoy.Bool(false)})}
}

// tags returns the additional tags of spans, by name.
func (b builder) tags(v view.Traces) (list []*tracingv3.CustomTag) {
	if !v.NoWorkloadTags {
		list = workloadTags()
	}
	for _, tag := range v.Tags {
		if t := b.tag(tag); t != nil {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b *tracingv3.CustomTag) int { return strings.Compare(a.Tag, b.Tag) })
	return list
}

// tag returns a tag of a user; nil if Envoy cannot make it.
func (b builder) tag(tag view.Tag) *tracingv3.CustomTag {
	t := &tracingv3.CustomTag{Tag: tag.Name}
	switch tag.Source {
	case view.FromText:
		t.Type = &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: tag.Value}}
	case view.FromEnvironment:
		return environmentTag(tag.Name, tag.Value, tag.Default)
	case view.FromHeader:
		t.Type = &tracingv3.CustomTag_RequestHeader{RequestHeader: &tracingv3.CustomTag_Header{Name: tag.Value, DefaultValue: tag.Default}}
	case view.FromFormat:
		if reason, _ := api.CheckLogFormat(tag.Value); reason != "" {
			return nil
		}
		t.Type = &tracingv3.CustomTag_Value{Value: tag.Value}
	}
	return t
}

func environmentTag(name, variable, otherwise string) *tracingv3.CustomTag {
	return &tracingv3.CustomTag{Tag: name, Type: &tracingv3.CustomTag_Environment_{
		Environment: &tracingv3.CustomTag_Environment{Name: variable, DefaultValue: otherwise},
	}}
}

// workloadTags say which workload made a span, and what policies that are only tried out would have done.
func workloadTags() []*tracingv3.CustomTag {
	const dryRun = "istio.authorization.dry_run."
	return []*tracingv3.CustomTag{
		environmentTag("istio.canonical_service", envoy.EnvCanonicalService, "unknown"),
		environmentTag("istio.canonical_revision", envoy.EnvCanonicalRevision, "latest"),
		environmentTag("istio.mesh_id", envoy.EnvMesh, "unknown"),
		environmentTag("istio.namespace", envoy.EnvNamespace, "default"),
		environmentTag("istio.cluster_id", envoy.EnvCluster, "unknown"),
		policyTag(dryRun+"allow_policy.name", "istio_dry_run_allow_shadow_effective_policy_id"),
		policyTag(dryRun+"allow_policy.result", "istio_dry_run_allow_shadow_engine_result"),
		policyTag(dryRun+"deny_policy.name", "istio_dry_run_deny_shadow_effective_policy_id"),
		policyTag(dryRun+"deny_policy.result", "istio_dry_run_deny_shadow_engine_result"),
	}
}

// policyTag is a tag with what the filter for policies writes into the metadata of a request.
func policyTag(name, key string) *tracingv3.CustomTag {
	return &tracingv3.CustomTag{Tag: name, Type: &tracingv3.CustomTag_Metadata_{Metadata: &tracingv3.CustomTag_Metadata{
		Kind: &metadatav3.MetadataKind{Kind: &metadatav3.MetadataKind_Request_{Request: &metadatav3.MetadataKind_Request{}}},
		MetadataKey: &metadatav3.MetadataKey{Key: "envoy.filters.http.rbac", Path: []*metadatav3.MetadataKey_PathSegment{
			{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: key}},
		}},
	}}}
}
