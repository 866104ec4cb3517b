package telemetry

import (
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
)

// otelLog is a log in the format of OpenTelemetry. Its body is a text, and its attributes have texts as values.
func (b builder) otelLog(o *meshconfig.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider, to *corev3.GrpcService) *otelv3.OpenTelemetryAccessLogConfig {
	format, fields := o.GetLogFormat().GetText(), o.GetLogFormat().GetLabels()
	if format == "" || !b.usable(format) {
		format = defaultFormat
	}
	if !b.usable(api.FieldFormats(fields)) {
		fields = nil
	}
	log := &otelv3.OpenTelemetryAccessLogConfig{
		CommonConfig: common(o.GetLogName(), otelLogName, to, nil), DisableBuiltinLabels: true, Body: otelText(format), //nolint:staticcheck // older Envoys have no other field
		Formatters: formatters(format + api.FieldFormats(fields)), ResourceDetectors: []*corev3.TypedExtensionConfig{environmentDetector()},
	}
	for _, name := range slices.Sorted(maps.Keys(fields.GetFields())) {
		if log.Attributes == nil {
			log.Attributes = &commonv1.KeyValueList{}
		}
		log.Attributes.Values = append(log.Attributes.Values, &commonv1.KeyValue{Key: name, Value: otelText(fields.Fields[name].GetStringValue())})
	}
	return log
}

func otelText(s string) *commonv1.AnyValue {
	return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: s}}
}
