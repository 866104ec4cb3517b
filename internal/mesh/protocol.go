package mesh

import "strings"

// Protocol is the protocol of a port.
type Protocol uint8

// The protocols. Auto is for ports whose protocol is not declared: the proxy detects it from the first bytes of a connection.
const (
	Auto Protocol = iota
	HTTP
	HTTP2
	GRPC
	GRPCWeb
	HTTPS
	TLS
	TCP
	Mongo
	MySQL
	Redis
	UDP
	// HTTPProxy is HTTP to a forward proxy: requests name the host and port of their destination.
	HTTPProxy
	// Dubbo is the protocol of Dubbo with a serialization that Envoy reads. Only registries declare it, with the interface of the service.
	Dubbo
)

var protocolNames = [...]string{"", "HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTPS", "TLS", "TCP", "MONGO", "MYSQL", "REDIS", "UDP", "HTTP_PROXY"}

// String returns the protocol as users write it; empty for Auto.
func (p Protocol) String() string {
	if p == Dubbo {
		return "DUBBO"
	}
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return "unknown"
}

// ParseProtocol parses the name of a protocol, in upper or lower case. It returns Auto for an empty name, and for an unknown name,
// for which known is false.
func ParseProtocol(s string) (p Protocol, known bool) {
	for i, name := range protocolNames {
		if strings.EqualFold(s, name) {
			return Protocol(i), true
		}
	}
	return Auto, false
}

// IsHTTP reports whether the protocol is HTTP, so requests can be routed by their content.
func (p Protocol) IsHTTP() bool {
	switch p {
	case HTTP, HTTP2, GRPC, GRPCWeb, HTTPProxy:
		return true
	}
	return false
}

// IsHTTP2 reports whether endpoints must be reached over HTTP/2.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p == GRPC || p == GRPCWeb }

// IsTLS reports whether the client itself uses TLS, which the proxy does not terminate.
func (p Protocol) IsTLS() bool { return p == TLS || p == HTTPS }

// Sniffed reports whether the proxy detects for each connection whether it is HTTP.
func (p Protocol) Sniffed() bool { return p == Auto }
