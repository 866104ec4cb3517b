package syntax

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// The operators that formats of logs and headers may name: plainOperators without an argument, argumentOperators only with one.
// An Envoy refuses the whole listener or route for one operator that it does not know. The lists hold what Envoy 1.40 accepts;
// TestOperatorsOfEnvoy asks the Envoy at hand about each of them.
const (
	plainOperators = `
ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS
CUSTOM_FLAGS DOWNSTREAM_CX_RTT DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT
DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID
DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_LOCAL_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS
DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION
DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_LOCAL_ADDRESS
DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_CLOSE_REASON
DOWNSTREAM_LOCAL_DNS_SAN DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN
DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT
DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_PEER_CERT_V_START DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1
DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256 DOWNSTREAM_PEER_CHAIN_SERIALS DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN
DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_ISSUER
DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256 DOWNSTREAM_PEER_ISSUER_SERIAL DOWNSTREAM_PEER_OTHERNAME_SAN
DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS
DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_GROUP
DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON DOWNSTREAM_WIRE_BYTES_RECEIVED
DOWNSTREAM_WIRE_BYTES_SENT DURATION EMIT_TIME EMIT_TIME_LOCAL FILTER_CHAIN_NAME GRPC_STATUS GRPC_STATUS_NUMBER
HOSTNAME LOCAL_REPLY_BODY PATH PROTOCOL QUERY_PARAMS REQUESTED_SERVER_NAME REQUEST_DURATION REQUEST_HEADERS_BYTES
REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_CODE_DETAILS RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG
RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION ROUNDTRIP_DURATION ROUTE_NAME
ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US SPAN_ID START_TIME START_TIME_LOCAL STREAM_ID TLS_JA3_FINGERPRINT
TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID
UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_CONNECTION_POOL_READY_DURATION UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED
UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED
UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT
UPSTREAM_HOST_NAME UPSTREAM_HOST_NAMES_ATTEMPTED UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT
UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT UPSTREAM_LOCAL_CLOSE_REASON
UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT
UPSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN UPSTREAM_PEER_ISSUER
UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS
UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT UPSTREAM_REMOTE_PORT
UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_SERVER_NAME UPSTREAM_TLS_CIPHER UPSTREAM_TLS_GROUP UPSTREAM_TLS_SESSION_ID
UPSTREAM_TLS_VERSION UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT
VIRTUAL_CLUSTER_NAME `
	argumentOperators = `
CEL CLUSTER_METADATA COALESCE COMMON_DURATION DYNAMIC_METADATA ENVIRONMENT FILTER_STATE METADATA QUERY_PARAM REQ
REQUEST_HEADER RESP RESPONSE_HEADER RESPONSE_TRAILER STREAM_INFO_REQ TRAILER UPSTREAM_FILTER_STATE UPSTREAM_METADATA `
)

// The operators that older supported Envoys do not know, by the minor of the first Envoy 1 that does. The lists come from asking
// Envoy 1.37.0, 1.38.2, 1.39.0 and 1.40.0 about each operator with --mode validate, as TestOperatorsOfEnvoy does: run it with
// ENVOY set to the binary of a version to check that version.
const (
	since38 = `
DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_LOCAL_CLOSE_REASON DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256
DOWNSTREAM_PEER_ISSUER_SERIAL QUERY_PARAMS SPAN_ID UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_DETECTED_CLOSE_TYPE
UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAMES_ATTEMPTED
UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT UPSTREAM_LOCAL_CLOSE_REASON `
	since39 = `
DOWNSTREAM_TLS_GROUP UPSTREAM_SERVER_NAME UPSTREAM_TLS_GROUP `
	since40 = `
DOWNSTREAM_CX_RTT ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US `
)

// OldestEnvoy is the minor version of the oldest supported Envoy 1.
const OldestEnvoy = 37

// checkFormat checks the operators of a format, such as %NAME(argument):12%: they must be complete, and known to Envoy. %% is a
// percent sign.
func checkFormat(s string) string {
	for rest := s; ; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			return ""
		}
		n := formatLen(rest[i:])
		if n == 0 {
			return fmt.Sprintf("%s has an unfinished format: write %%%% for a percent sign", document.Quote(s))
		}
		if reason := checkOperator(rest[i : i+n]); reason != "" {
			return reason
		}
		rest = rest[i+n:]
	}
}

// checkOperator checks one complete operator.
func checkOperator(format string) string {
	name, argument := format[1:len(format)-1], false
	if i := strings.IndexAny(name, "(:"); i >= 0 {
		name, argument = name[:i], name[i] == '('
	}
	switch {
	case name == "" || listed(plainOperators, name):
	case !listed(argumentOperators, name):
		return fmt.Sprintf("Envoy knows no %s, which %s names", name, document.Quote(format))
	case !argument:
		return fmt.Sprintf("%s needs to say of what, like %%%s(NAME)%%", document.Quote(format), name)
	}
	return ""
}

func listed(list, name string) bool {
	for known := range strings.FieldsSeq(list) {
		if known == name {
			return true
		}
	}
	return false
}

// EnvoyFor returns the minor version of the oldest supported Envoy 1 that knows all operators of a valid format, text or JSON, and
// an operator that older versions do not know. The operator is empty if all supported versions know all operators.
func EnvoyFor(format string) (minor uint32, operator string) {
	minor = OldestEnvoy
	for rest := format; ; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			return minor, operator
		}
		n := formatLen(rest[i:])
		if n == 0 {
			return minor, operator
		}
		name, _, _ := strings.Cut(strings.Trim(rest[i:i+n], "%"), ":")
		for _, s := range []struct {
			minor uint32
			names string
		}{{38, since38}, {39, since39}, {40, since40}} {
			if s.minor > minor && listed(s.names, name) {
				minor, operator = s.minor, name
			}
		}
		rest = rest[i+n:]
	}
}

// LogFormat checks the operators of a format of access logs. They have one operator more, whose extension of Envoy is added, and
// expressions in CEL must be ones that Envoy can evaluate.
func LogFormat(s string) string {
	s = strings.ReplaceAll(s, "%REQ_WITHOUT_QUERY(", "%REQ(")
	if reason := checkFormat(s); reason != "" {
		return reason
	}
	for rest := s; ; {
		_, after, found := strings.Cut(rest, "%CEL(")
		if !found {
			return ""
		}
		n := formatLen("%CEL(" + after)
		argument := after[:max(0, n-len("%CEL("))]
		if reason := EnvoyExpression(argument[:strings.LastIndexByte(argument, ')')]); reason != "" {
			return reason
		}
		rest = after[len(argument):]
	}
}

// LogFormats returns the formats of a provider of access logs. They may be wrong.
func LogFormats(p *meshconfig.MeshConfig_ExtensionProvider) (list []string) {
	file, otel := p.GetEnvoyFileAccessLog().GetLogFormat(), p.GetEnvoyOtelAls().GetLogFormat()
	list = append(list, file.GetText(), otel.GetText())
	return append(list, FieldFormats(file.GetLabels()), FieldFormats(otel.GetLabels()))
}

// FieldFormats returns all texts in an object, one per line. Each of them is a format.
func FieldFormats(fields *structpb.Struct) string {
	var out strings.Builder
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case string:
			out.WriteString(v + "\n")
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				add(v[name])
			}
		case []any:
			for _, e := range v {
				add(e)
			}
		}
	}
	add(fields.AsMap())
	return out.String()
}

// CheckAccessLogFormat returns why the access log format cannot be used; empty if it can, or if there is none.
func CheckAccessLogFormat(m *meshconfig.MeshConfig) string {
	if m.AccessLogFormat == "" || m.AccessLogEncoding != meshconfig.MeshConfig_JSON {
		return LogFormat(m.AccessLogFormat)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(m.AccessLogFormat), &members); err != nil || len(members) == 0 {
		return "is not a JSON object, although accessLogEncoding is JSON"
	}
	return checkFormats(members)
}

// checkFormats checks all texts in a decoded JSON value.
func checkFormats(v any) (reason string) {
	switch v := v.(type) {
	case string:
		return LogFormat(v)
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if reason = checkFormats(v[name]); reason != "" {
				return reason
			}
		}
	case []any:
		for _, e := range v {
			if reason = checkFormats(e); reason != "" {
				return reason
			}
		}
	}
	return ""
}
