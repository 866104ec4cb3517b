package mesh

import "strings"

// Protocol is what a port speaks.
type Protocol uint8

// Auto is a port whose protocol is not declared: the proxy looks at the first bytes.
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
	// HTTPProxy is HTTP whose requests name, beside the path, the host and port that they are for.
	HTTPProxy
)

var protocolNames = [...]string{"", "HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTPS", "TLS", "TCP", "MONGO", "MYSQL", "REDIS", "UDP", "HTTP_PROXY"}

// String is the protocol as users write it; empty for Auto.
func (p Protocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return "unknown"
}

// ParseProtocol reads a protocol's name in any case. What is empty or not known is Auto; known reports which of the two.
func ParseProtocol(s string) (p Protocol, known bool) {
	for i, name := range protocolNames {
		if strings.EqualFold(s, name) {
			return Protocol(i), true
		}
	}
	return Auto, false
}

// IsHTTP reports whether requests can be routed by what they ask.
func (p Protocol) IsHTTP() bool {
	switch p {
	case HTTP, HTTP2, GRPC, GRPCWeb, HTTPProxy:
		return true
	}
	return false
}

// IsHTTP2 reports whether the upstream must be spoken to in HTTP/2.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p == GRPC || p == GRPCWeb }

// IsTLS reports whether the client's own TLS passes through.
func (p Protocol) IsTLS() bool { return p == TLS || p == HTTPS }

// Sniffed reports whether HTTP or not is decided per connection.
func (p Protocol) Sniffed() bool { return p == Auto }
