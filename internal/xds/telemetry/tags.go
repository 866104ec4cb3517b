package telemetry

import (
	"encoding/json"

	"github.com/pilotmesh/pilot/internal/mesh"
	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// withoutRules is the minor version of the Envoy whose stats logger has no rules for the values of tags.
const withoutRules = 37

// metricTag is a tag of a metric. Its value is a text with operators, or what the first of some operators yields that yields anything.
type metricTag struct {
	name, text string
	from       []operator
	// mayBeEmpty keeps an empty value as it is.
	mayBeEmpty bool
}

// operator is an operator of Envoy's formats.
type operator struct {
	Command string `json:"command"`
	Param   string `json:"param,omitempty"`
}

// format returns the format of the value. With fallback, the last operator yields "unknown".
func (t metricTag) format(fallback bool) string {
	from := t.from
	if fallback && len(from) > 0 && !t.mayBeEmpty {
		from = append(from[:len(from):len(from)], operator{"ENVIRONMENT", envoy.EnvUnknown})
	}
	switch len(from) {
	case 0:
		return t.text
	case 1:
		if from[0].Param == "" {
			return "%" + from[0].Command + "%"
		}
		return "%" + from[0].Command + "(" + from[0].Param + ")%"
	}
	text, err := json.Marshal(struct {
		Operators []operator `json:"operators"`
	}{from})
	if err != nil {
		panic(err) // texts always fit
	}
	return "%COALESCE(" + string(text) + ")%"
}

// workloadTag is a tag about a workload: its name behind source_ or destination_, the variable with the value of the proxy's own workload,
// the key of the value in the metadata of an endpoint, and its place in the certificate of a client, unless it is in the identity there.
type workloadTag struct {
	name, variable, key string
	field               mesh.WorkloadField
}

func aboutWorkload() []workloadTag {
	return []workloadTag{
		{"workload", envoy.EnvWorkload, envoy.PeerWorkload, mesh.FieldWorkload},
		{"workload_namespace", envoy.EnvNamespace, envoy.PeerNamespace, 0},
		{"app", envoy.EnvApp, envoy.PeerApp, mesh.FieldApp},
		{"version", envoy.EnvVersion, envoy.PeerVersion, mesh.FieldVersion},
		{"canonical_service", envoy.EnvCanonicalService, envoy.PeerService, mesh.FieldService},
		{"canonical_revision", envoy.EnvCanonicalRevision, envoy.PeerRevision, mesh.FieldRevision},
		{"cluster", envoy.EnvCluster, envoy.PeerCluster, mesh.FieldCluster},
	}
}

// standardTags returns Istio's tags for requests or connections. secure says that they come over mutual TLS of the mesh.
func (b builder) standardTags(http, secure bool) []metricTag {
	server := b.Side == view.Server
	own, peer, reporter := "source_", "destination_", "source"
	if server {
		own, peer, reporter = peer, own, "destination"
	}
	list := []metricTag{{name: "reporter", text: reporter}}
	for _, w := range aboutWorkload() {
		list = append(list, metricTag{name: own + w.name, from: []operator{{"ENVIRONMENT", w.variable}}})
		t := metricTag{name: peer + w.name, from: []operator{{"UPSTREAM_METADATA", envoy.PeerMetadata + ":" + w.key}}}
		if server {
			t = sourceTag(peer+w.name, w.key, http, secure && b.OldStats == 0)
		}
		list = append(list, t)
	}
	list = append(list, b.principals(secure)...)
	list = append(list, b.destination(http, secure)...)
	list = append(list, metricTag{name: "response_flags", text: "%RESPONSE_FLAGS%"})
	if !http {
		return append(list, metricTag{name: "request_protocol", text: "tcp"})
	}
	const protocol = `%CEL('content-type' in request.headers && request.headers['content-type'].startsWith('application/grpc') ? 'grpc' : 'http')%`
	return append(list, metricTag{name: "request_protocol", text: protocol}, metricTag{name: "response_code", text: "%RESPONSE_CODE%"},
		metricTag{name: "grpc_response_status", from: []operator{{Command: "GRPC_STATUS_NUMBER"}}, mayBeEmpty: true})
}

// sourceTag is a tag about the workload of a client. Its certificate is believed first, then its headers. Of its namespace, only the certificate is
// believed, and without a certificate of the mesh nothing is.
func sourceTag(name, key string, http, certified bool) metricTag {
	if !certified {
		return metricTag{name: name, text: unknown}
	}
	from := []operator{{"FILTER_STATE", peerKey + key + ":PLAIN"}}
	if http && key != envoy.PeerNamespace {
		from = append(from, operator{"DYNAMIC_METADATA", envoy.PeerMetadata + ":" + headerKey + ":" + key})
	}
	if http && key == envoy.PeerWorkload {
		from = append(from, operator{"DYNAMIC_METADATA", envoy.PeerMetadata + ":" + headerIDKey})
	}
	return metricTag{name: name, from: from}
}

// principals are the tags with the identities in certificates, and whether the connection has mutual TLS of the mesh.
func (b builder) principals(secure bool) []metricTag {
	source, destination := "UPSTREAM_LOCAL_URI_SAN", "UPSTREAM_PEER_URI_SAN"
	security := unknown // a client does not know it for each request
	if b.Side == view.Server {
		source, destination, security = "DOWNSTREAM_PEER_URI_SAN", "DOWNSTREAM_LOCAL_URI_SAN", "none"
		if secure {
			security = "mutual_tls"
		}
	}
	return []metricTag{
		{name: "source_principal", from: []operator{{Command: source}}}, {name: "destination_principal", from: []operator{{Command: destination}}},
		{name: "connection_security_policy", text: security},
	}
}

// destination are the tags about the service. A host that a client chose counts only where no service is known, and the client belongs to
// the mesh.
func (b builder) destination(http, secure bool) []metricTag {
	from := func(key string) []operator {
		return []operator{{"METADATA", "CLUSTER:" + envoy.ServiceMetadataKey + ":" + key}}
	}
	host, name := from(envoy.ServiceHost), from(envoy.ServiceName)
	if http && !b.Gateway && (b.Side == view.Client || secure) {
		authority := operator{"REQ", ":authority"}
		host, name = append(host, authority), append(name, authority)
	}
	return []metricTag{
		{name: "destination_service", from: host}, {name: "destination_service_name", from: name},
		{name: "destination_service_namespace", from: from(envoy.ServiceNamespace)},
	}
}
