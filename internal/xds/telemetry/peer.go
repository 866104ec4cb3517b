package telemetry

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	valuev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	celformatv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/cel/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// peerKey begins the keys under which a connection has what the certificate of its client says.
const peerKey = "pilot.peer."

// rememberPeer is a filter that remembers what the certificate of a client says about its workload, once per connection. The identity in it is
// spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT. The attribute "description" of its subject, if there is one, has the names of the workload; package
// security/ca writes it. An empty name there counts as unknown, so that no header is believed about it.
func rememberPeer() *listenerv3.Filter {
	values := []*valuev3.FilterStateValue{peerValue(envoy.PeerNamespace, "connection.uri_san_peer_certificate.split('/')[4]")}
	for _, w := range aboutWorkload() {
		if w.key != envoy.PeerNamespace {
			name := fmt.Sprintf("connection.subject_peer_certificate.split('description=')[1].split(',')[0].split('%s')[%d]", mesh.FieldSeparator, w.field)
			values = append(values, peerValue(w.key, fmt.Sprintf("%[1]s == '' ? '%[2]s' : %[1]s", name, unknown)))
		}
	}
	return envoy.NetworkFilter("envoy.filters.network.set_filter_state", &setv3.Config{OnDownstreamTlsHandshake: values})
}

// peerValue remembers the value of an expression, unless the expression fails because the certificate has no such attribute.
func peerValue(key, expression string) *valuev3.FilterStateValue {
	return &valuev3.FilterStateValue{
		Key: &valuev3.FilterStateValue_ObjectKey{ObjectKey: peerKey + key}, FactoryKey: "envoy.string", SkipIfEmpty: true,
		Value: &valuev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
			OmitEmptyValues: true,
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
				Specifier: &corev3.DataSource_InlineString{InlineString: "%CEL(" + expression + ")%"},
			}},
			Formatters: []*corev3.TypedExtensionConfig{{Name: "envoy.formatter.cel", TypedConfig: envoy.Pack(&celformatv3.Cel{
				CelConfig: &corev3.CelExpressionConfig{EnableStringFunctions: true},
			})}},
		}},
	}
}
