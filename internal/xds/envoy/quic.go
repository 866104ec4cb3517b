package envoy

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

const quicSocket = "envoy.transport_sockets.quic"

// QUICPrefix begins the name of a listener for HTTP/3. Beside it may be a TCP listener at the same address and port, which has the rest of the name.
const QUICPrefix = "udp_"

// QUICListener is a listener for HTTP/3 without filter chains. Their transport sockets are of ServerTLS with QUIC, and their connection managers have
// HTTP3.
func QUICListener(ip string, port uint32, way Direction) *listenerv3.Listener {
	l := Listener(QUICPrefix+ListenerName(ip, port), ip, port, way, true)
	l.Address.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	l.UdpListenerConfig = &listenerv3.UdpListenerConfig{QuicOptions: &listenerv3.QuicProtocolOptions{}}
	return l
}

// overQUIC changes the settings of a server for TLS into settings for QUIC, which knows TLS 1.3 only.
func overQUIC(config *tlsv3.DownstreamTlsContext) *corev3.TransportSocket {
	config.CommonTlsContext.AlpnProtocols = []string{"h3"}
	p := config.CommonTlsContext.TlsParams
	p.TlsMinimumProtocolVersion, p.TlsMaximumProtocolVersion = tlsv3.TlsParameters_TLSv1_3, tlsv3.TlsParameters_TLSv1_3
	p.CipherSuites = nil
	return socket(quicSocket, &quicv3.QuicDownstreamTransport{DownstreamTlsContext: config})
}

// alternative is the header by which clients learn of HTTP/3, and alternativeAge how many seconds they may remember it.
const (
	alternative    = "alt-svc"
	alternativeAge = 86400
)

// OfferHTTP3 makes the answers to all requests say that the same hosts are reached over HTTP/3 at a port. An answer that has the header already keeps
// it, so that a route can say "clear".
func OfferHTTP3(c *routev3.RouteConfiguration, port uint32) {
	c.ResponseHeadersToAdd = append(c.ResponseHeadersToAdd, &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: alternative, Value: fmt.Sprintf(`h3=":%d"; ma=%d`, port, alternativeAge)},
		AppendAction: corev3.HeaderValueOption_ADD_IF_ABSENT,
	})
}
