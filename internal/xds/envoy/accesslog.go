package envoy

import (
	"encoding/json"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

const fileLog = "envoy.access_loggers.file"

// defaultFormat is Istio's default, which log parsers expect.
const defaultFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
	`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% ` +
	`%DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" ` +
	`"%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% ` +
	`%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%`

// defaultFields are the same operators as members of a JSON object.
func defaultFields() map[string]any {
	return map[string]any{
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
	}
}

// TextLog is an access log of text lines in a file. An empty format means the default one.
func TextLog(file, format string) *accesslogv3.AccessLog {
	if format == "" {
		format = defaultFormat
	}
	if !strings.HasSuffix(format, "\n") {
		format += "\n"
	}
	return fileAccessLog(file, &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
		TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: format}},
	}})
}

// JSONLog is an access log of JSON objects in a file. A format that is not a JSON object is replaced by the default one.
func JSONLog(file, format string) *accesslogv3.AccessLog {
	var members map[string]any
	if json.Unmarshal([]byte(format), &members) != nil || len(members) == 0 {
		members = defaultFields()
	}
	object, err := structpb.NewStruct(members)
	if err != nil {
		panic(err) // everything that JSON decodes to fits
	}
	return fileAccessLog(file, &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: object}})
}

func fileAccessLog(file string, format *corev3.SubstitutionFormatString) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: fileLog, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: Pack(&filev3.FileAccessLog{
		Path: file, AccessLogFormat: &filev3.FileAccessLog_LogFormat{LogFormat: format},
	})}}
}

// AddAccessLog makes all filters of a listener log. With listeners, the listener itself also logs connections that no
// filter chain matches.
func AddAccessLog(l *listenerv3.Listener, log *accesslogv3.AccessLog, listeners bool) {
	for _, c := range l.FilterChains {
		addChainLog(c, log)
	}
	if l.DefaultFilterChain != nil {
		addChainLog(l.DefaultFilterChain, log)
	}
	if !listeners {
		return
	}
	unmatched := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
	l.AccessLog = append(l.AccessLog, &accesslogv3.AccessLog{Name: log.Name, ConfigType: log.ConfigType, Filter: unmatched})
}

func addChainLog(c *listenerv3.FilterChain, log *accesslogv3.AccessLog) {
	for _, f := range c.Filters {
		switch f.Name {
		case hcmFilter:
			m := new(hcmv3.HttpConnectionManager)
			if f.GetTypedConfig().UnmarshalTo(m) == nil {
				m.AccessLog = append(m.AccessLog, log)
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: Pack(m)}
			}
		case tcpProxyFilter:
			m := new(tcpproxyv3.TcpProxy)
			if f.GetTypedConfig().UnmarshalTo(m) == nil {
				m.AccessLog = append(m.AccessLog, log)
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: Pack(m)}
			}
		}
	}
}
