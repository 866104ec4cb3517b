// Package gateways has the values that gateways are made of: servers, which are ports with hosts and certificates, and routes. They are
// the same whatever kind of object says so.
//
// It also reads an Ingress as these values. That follows from the Ingress alone; which Ingresses count, and which of several routes for
// a path is used, is decided in view/gateway. Values are not changed once they are made. The package has no goroutines.
package gateways

import "slices"

// AnyHost is the host of servers and routes for all hosts.
const AnyHost = "*"

// PathMatch tells how the path of a route is compared with that of a request.
type PathMatch uint8

// The ways to compare paths.
const (
	// AnyPath matches all requests.
	AnyPath PathMatch = iota
	// ExactPath matches the same path.
	ExactPath
	// PathSegments matches a path that begins with the same segments: /a matches /a and /a/b, and not /ab.
	PathSegments
)

// Server is a port of gateways.
type Server struct {
	Port uint32
	// Field is where the object says so; empty for a server that follows from the kind of the object.
	Field string
	// Hosts are the hosts that it serves, in lower case, or AnyHost.
	Hosts []string
	// TLS is true if the server takes TLS and shows a certificate (the mode SIMPLE of the API). Credential names the Secret with the
	// certificate, in the namespace of the gateway.
	TLS        bool
	Credential string
}

// Route leads requests for a path of a host to a backend.
type Route struct {
	// Host is a host in lower case, a pattern such as *.example.com, or AnyHost.
	Host  string
	Match PathMatch
	Path  string
	// Field is where the object has the route.
	Field   string
	Backend Backend
}

// Backend is a port of a service, by its number or its name. Host is empty if the object names something else than a service.
type Backend struct {
	// Host is the host of the service, and Field where the object names it.
	Host, Field string
	Port        uint32
	PortName    string
}

// Equal reports whether two servers are the same.
func (s Server) Equal(o Server) bool {
	return s.Port == o.Port && s.Field == o.Field && s.TLS == o.TLS && s.Credential == o.Credential && slices.Equal(s.Hosts, o.Hosts)
}
