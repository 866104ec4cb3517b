package telemetry

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	valuev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	celformatv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/cel/v3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// peerNamespace is the key under which a connection has the namespace of its client.
const peerNamespace = "pilot.peer." + envoy.PeerNamespace

// rememberPeer is a filter that remembers the namespace in the certificate of a client, once per connection. The identity in it is
// spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT.
func rememberPeer() *listenerv3.Filter {
	namespace := &corev3.SubstitutionFormatString{
		OmitEmptyValues: true,
		Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: "%CEL(connection.uri_san_peer_certificate.split('/')[4])%"},
		}},
		Formatters: []*corev3.TypedExtensionConfig{{Name: "envoy.formatter.cel", TypedConfig: envoy.Pack(&celformatv3.Cel{
			CelConfig: &corev3.CelExpressionConfig{EnableStringFunctions: true},
		})}},
	}
	return envoy.NetworkFilter("envoy.filters.network.set_filter_state", &setv3.Config{OnDownstreamTlsHandshake: []*valuev3.FilterStateValue{{
		Key: &valuev3.FilterStateValue_ObjectKey{ObjectKey: peerNamespace}, FactoryKey: "envoy.string", SkipIfEmpty: true,
		Value: &valuev3.FilterStateValue_FormatString{FormatString: namespace},
	}}})
}
