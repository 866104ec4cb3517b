package telemetry

import (
	"encoding/json"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	grpcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	withoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state/provider"
	"github.com/pilotmesh/pilot/internal/state/settings"
	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Names of loggers, and of their logs unless the provider has a name for it.
const (
	fileLogger = "envoy.access_loggers.file"
	httpLogger = "envoy.access_loggers.http_grpc"
	tcpLogger  = "envoy.access_loggers.tcp_grpc"
	otelLogger = "envoy.access_loggers.open_telemetry"
	celFilter  = "envoy.access_loggers.extension_filters.cel"

	httpLogName = "http_envoy_accesslog"
	tcpLogName  = "tcp_envoy_accesslog"
	otelLogName = "otel_envoy_accesslog"
)

const (
	// builtInProvider is the provider of the default mesh configuration. It logs in the format of the mesh.
	builtInProvider = "envoy"
	// standardOutput is where a provider without a path logs.
	standardOutput = "/dev/stdout"
	// serviceCluster is the cluster in the bootstrap of proxies for the access log service that defaultConfig names.
	serviceCluster = "envoy_accesslog_service"
)

// defaultFormat is Istio's default, which log parsers expect.
const defaultFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
	`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% ` +
	`%DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" ` +
	`"%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% ` +
	`%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%` + "\n"

// defaultFields are the same operators as members of a JSON object.
func defaultFields() *structpb.Struct {
	fields := map[string]*structpb.Value{}
	for name, format := range map[string]string{
		"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%", "protocol": "%PROTOCOL%",
		"response_code": "%RESPONSE_CODE%", "response_flags": "%RESPONSE_FLAGS%", "response_code_details": "%RESPONSE_CODE_DETAILS%",
		"connection_termination_details":    "%CONNECTION_TERMINATION_DETAILS%",
		"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
		"bytes_received":                    "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%", "duration": "%DURATION%",
		"upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%", "x_forwarded_for": "%REQ(X-FORWARDED-FOR)%",
		"user_agent": "%REQ(USER-AGENT)%", "request_id": "%REQ(X-REQUEST-ID)%", "authority": "%REQ(:AUTHORITY)%",
		"upstream_host": "%UPSTREAM_HOST%", "upstream_cluster": "%UPSTREAM_CLUSTER_RAW%",
		"upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%", "downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%",
		"downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%", "requested_server_name": "%REQUESTED_SERVER_NAME%",
		"route_name": "%ROUTE_NAME%",
	} {
		fields[name] = structpb.NewStringValue(format)
	}
	return &structpb.Struct{Fields: fields}
}

// logger is an access logger without a filter, and the filter that its Telemetry sets; nil for none.
type logger struct {
	name   string
	config proto.Message
	filter *accesslogv3.AccessLogFilter
}

// of returns the access logger with a filter.
func (l logger) of(filter *accesslogv3.AccessLogFilter) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: l.name, Filter: filter, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoy.Pack(l.config)}}
}

// unmatched matches connections that no filter chain of a listener takes.
func unmatched() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
}

// both matches what two filters match. A nil one matches everything.
func both(a, b *accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	if b == nil {
		return a
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{a, b}},
	}}
}

// expression matches what an expression in CEL is true for.
func expression(text string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{ExtensionFilter: &accesslogv3.ExtensionFilter{
		Name: celFilter, ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: envoy.Pack(&celv3.ExpressionFilter{Expression: text})},
	}}}
}

// logs returns the loggers of the key. A log whose filter Envoy cannot evaluate is left out: to log everything may reveal what the filter
// is to keep out.
func (b builder) logs() (list []logger) {
	logs, mesh := view.Logs(b.q.tables, b.r, b.Set, b.Side)
	if mesh {
		return b.meshLogs()
	}
	for _, log := range logs {
		p, _ := b.q.tables.Telemetry.ProviderFor(b.r, log.Provider, provider.ForLogs)
		l, ok := b.logger(p)
		if !ok {
			continue
		}
		if log.Filter != "" {
			if api.CheckExpression(log.Filter) != "" {
				continue
			}
			l.filter = expression(log.Filter)
		}
		list = append(list, l)
	}
	return list
}

// meshLogs returns the loggers that the mesh configuration names itself.
func (b builder) meshLogs() (list []logger) {
	mesh := b.q.tables.AccessLog(b.r)
	if mesh.File != "" {
		list = append(list, b.meshFile(mesh.File, mesh))
	}
	if mesh.Service {
		list = append(list, logger{name: httpLogger, config: httpLog(&meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider{}, grpcCluster(serviceCluster, ""))})
	}
	return list
}

// meshFile is a log in a file in the format of the mesh.
func (b builder) meshFile(path string, mesh settings.AccessLog) logger {
	if !mesh.JSON {
		return b.textFile(path, mesh.Format, false)
	}
	fields := new(structpb.Struct)
	if json.Unmarshal([]byte(mesh.Format), fields) != nil {
		fields = nil
	}
	return b.jsonFile(path, fields, false)
}

// logger returns the logger of a provider; false if it cannot log.
func (b builder) logger(p *meshconfig.MeshConfig_ExtensionProvider) (logger, bool) {
	switch o := p.GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
		return b.file(p.GetName(), o.EnvoyFileAccessLog), true
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		to, ok := b.grpc(p)
		return logger{name: httpLogger, config: httpLog(o.EnvoyHttpAls, to)}, ok
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		to, ok := b.grpc(p)
		return logger{name: tcpLogger, config: &grpcv3.TcpGrpcAccessLogConfig{
			CommonConfig: common(o.EnvoyTcpAls.GetLogName(), tcpLogName, to, o.EnvoyTcpAls.GetFilterStateObjectsToLog()),
		}}, ok
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		to, ok := b.grpc(p)
		return logger{name: otelLogger, config: b.otelLog(o.EnvoyOtelAls, to)}, ok
	}
	return logger{}, false
}

func (b builder) file(name string, o *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider) logger {
	path := o.GetPath()
	if path == "" {
		path = standardOutput
	}
	format := o.GetLogFormat()
	switch {
	case format.GetLabels() != nil:
		return b.jsonFile(path, format.GetLabels(), o.GetOmitEmptyValues())
	case name == builtInProvider && format == nil && !o.GetOmitEmptyValues():
		return b.meshFile(path, b.q.tables.AccessLog(b.r))
	}
	return b.textFile(path, format.GetText(), o.GetOmitEmptyValues())
}

// usable reports whether the Envoys of the key accept the operators of a format.
func (b builder) usable(format string) bool {
	reason, minor := api.CheckLogFormat(format)
	return reason == "" && (!b.DefaultLog || minor <= api.OldestEnvoy)
}

func (b builder) textFile(path, format string, omitEmpty bool) logger {
	switch {
	case format == "" || !b.usable(format):
		format = defaultFormat
	case !strings.HasSuffix(format, "\n"):
		format += "\n"
	}
	return fileLog(path, &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: format}},
		},
		OmitEmptyValues: omitEmpty, Formatters: formatters(format),
	})
}

func (b builder) jsonFile(path string, fields *structpb.Struct, omitEmpty bool) logger {
	text := api.FieldFormats(fields)
	if len(fields.GetFields()) == 0 || !b.usable(text) {
		fields, text = defaultFields(), ""
	}
	return fileLog(path, &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: fields}, OmitEmptyValues: omitEmpty, Formatters: formatters(text),
	})
}

func fileLog(path string, format *corev3.SubstitutionFormatString) logger {
	return logger{name: fileLogger, config: &filev3.FileAccessLog{
		Path: path, AccessLogFormat: &filev3.FileAccessLog_LogFormat{LogFormat: format},
	}}
}

// formatters returns the extensions that operators of a format need.
func formatters(format string) []*corev3.TypedExtensionConfig {
	if !strings.Contains(format, "%REQ_WITHOUT_QUERY(") {
		return nil
	}
	return []*corev3.TypedExtensionConfig{{Name: "envoy.formatter.req_without_query", TypedConfig: envoy.Pack(&withoutqueryv3.ReqWithoutQuery{})}}
}

func httpLog(o *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider, to *corev3.GrpcService) *grpcv3.HttpGrpcAccessLogConfig {
	return &grpcv3.HttpGrpcAccessLogConfig{
		CommonConfig:                    common(o.GetLogName(), httpLogName, to, o.GetFilterStateObjectsToLog()),
		AdditionalRequestHeadersToLog:   o.GetAdditionalRequestHeadersToLog(),
		AdditionalResponseHeadersToLog:  o.GetAdditionalResponseHeadersToLog(),
		AdditionalResponseTrailersToLog: o.GetAdditionalResponseTrailersToLog(),
	}
}

func common(name, otherwise string, to *corev3.GrpcService, states []string) *grpcv3.CommonGrpcAccessLogConfig {
	if name == "" {
		name = otherwise
	}
	return &grpcv3.CommonGrpcAccessLogConfig{LogName: name, GrpcService: to, TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: states}
}
