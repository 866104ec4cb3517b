// Package gateway has the values that gateways are made of: servers, which are ports with hosts and certificates, and routes. They are
// the same for all kinds of objects.
//
// It also converts a Gateway and an Ingress to these values, from the object alone. Package view/gateway decides which Ingresses count,
// which of several servers of a port are used, and which of several routes for a path. Values never change. The package has no goroutines.
package gateway

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// AnyHost is the host of servers and routes for all hosts.
const AnyHost = "*"

// PathMatch is how the path of a route is compared with the path of a request.
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
	// Port and PortName are the number and the name of the port. The number is a port of the Service in front of the gateways.
	Port     uint32
	PortName string
	// Name names the server in statistics; empty for none.
	Name     string
	Protocol mesh.Protocol
	// Bind is the IP address or the "unix://" socket to listen at; empty for any address.
	Bind string
	// Field is where the object declares the server; empty for a server that follows from the kind of the object.
	Field string
	// Hosts are the hosts that it serves.
	Hosts []Host
	// TLS are the settings for TLS; nil without any.
	TLS *TLS
}

// TLSMode says how TLS is handled.
type TLSMode uint8

// The modes.
const (
	// TLSSimple terminates TLS; clients need no certificate.
	TLSSimple TLSMode = iota
	// TLSMutual terminates TLS; clients need a certificate.
	TLSMutual
	// TLSOptional terminates TLS; a certificate that a client has must be good.
	TLSOptional
	// TLSMesh terminates mutual TLS of the mesh.
	TLSMesh
	// TLSPass forwards TLS by the name that clients ask for.
	TLSPass
	// TLSPassMesh forwards TLS of the mesh to the service that clients ask for.
	TLSPassMesh
)

// TLS are the settings of a server for TLS.
type TLS struct {
	Mode TLSMode
	// Redirect redirects requests to a server without TLS to HTTPS.
	Redirect bool
	// Credentials name Secrets with certificates, in the namespace of the gateway, and RootsCredential one with the roots of clients'
	// certificates; if it is empty, the first of the others has them.
	Credentials     []string
	RootsCredential string
	// Certificates are pairs of names of files with a certificate and its key. Roots and CRL are the names of files with the roots of
	// clients' certificates and with a revocation list.
	Certificates [][2]string
	Roots, CRL   string
	// SubjectAltNames, SPKI and Hashes are the names, public keys and certificates that clients may have; empty for all.
	SubjectAltNames, SPKI, Hashes []string
	// SkipVerify accepts any certificate of a client.
	SkipVerify bool
	// Min and Max are the minor versions of TLS 1, as in compliance.Parameters, 0 if they are left open. Ciphers and Curves are empty if they are.
	Min, Max        uint32
	Ciphers, Curves []string
}

// Equal reports whether two settings are the same.
func (t *TLS) Equal(o *TLS) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Mode == o.Mode && t.Redirect == o.Redirect && t.RootsCredential == o.RootsCredential && t.Roots == o.Roots && t.CRL == o.CRL &&
		t.SkipVerify == o.SkipVerify && t.Min == o.Min && t.Max == o.Max && slices.Equal(t.Credentials, o.Credentials) &&
		slices.Equal(t.Certificates, o.Certificates) && slices.Equal(t.SubjectAltNames, o.SubjectAltNames) && slices.Equal(t.SPKI, o.SPKI) &&
		slices.Equal(t.Hashes, o.Hashes) && slices.Equal(t.Ciphers, o.Ciphers) && slices.Equal(t.Curves, o.Curves)
}

// Host is a host that a server serves.
type Host struct {
	// Namespace is the namespace whose routes count; empty for all namespaces.
	Namespace string
	// Name is the host in lower case, a pattern such as *.example.com, or AnyHost.
	Name string
}

// Kind is what a server does with connections.
type Kind uint8

// The kinds.
const (
	// TakesHTTP takes requests without TLS.
	TakesHTTP Kind = iota
	// TakesHTTPS takes requests in TLS, which it terminates.
	TakesHTTPS
	// TerminatesTLS takes connections other than HTTP in TLS, which it terminates.
	TerminatesTLS
	// PassesTLS forwards TLS by the name that clients ask for.
	PassesTLS
	// PassesMeshTLS forwards TLS of the mesh to the service that clients ask for.
	PassesMeshTLS
	// TakesTCP takes connections other than HTTP without TLS.
	TakesTCP
)

// Kind returns what the server does with connections.
func (s Server) Kind() Kind {
	switch {
	case s.Protocol.IsHTTP():
		return TakesHTTP
	case !s.Protocol.IsTLS() || s.TLS == nil:
		return TakesTCP
	case s.TLS.Mode == TLSPassMesh:
		return PassesMeshTLS
	case s.TLS.Mode == TLSPass:
		return PassesTLS
	case s.Protocol == mesh.HTTPS:
		return TakesHTTPS
	}
	return TerminatesTLS
}

// IsTLS reports whether connections to servers of the kind are TLS.
func (k Kind) IsTLS() bool { return k != TakesHTTP && k != TakesTCP }

// Secure reports whether the server takes TLS and shows a certificate.
func (s Server) Secure() bool { k := s.Kind(); return k == TakesHTTPS || k == TerminatesTLS }

// Credential names the Secret with the certificate, in the namespace of the gateway; empty for none.
func (s Server) Credential() string {
	if s.TLS == nil || len(s.TLS.Credentials) == 0 {
		return ""
	}
	return s.TLS.Credentials[0]
}

// Ordinary reports whether the server needs nothing for a host but one certificate, which the control plane serves, and the settings for TLS of
// the mesh. Such servers may share a filter chain.
func (s Server) Ordinary() bool {
	if s.Kind() != TakesHTTPS || s.Credential() == "" || strings.Contains(s.Credential(), "://") {
		return false
	}
	return s.TLS.Equal(&TLS{Credentials: []string{s.Credential()}, Redirect: s.TLS.Redirect}) // redirects are for servers without TLS
}

// OrdinaryHosts is the number of hosts, without patterns, of an ordinary server; 0 for others.
func (s Server) OrdinaryHosts() (n int) {
	if !s.Ordinary() {
		return 0
	}
	for _, h := range s.Hosts {
		if h.Exact() {
			n++
		}
	}
	return n
}

// Exact reports whether the host is a name, and no pattern.
func (h Host) Exact() bool { return !strings.HasPrefix(h.Name, AnyHost) }

// Redirects reports whether requests are redirected to HTTPS.
func (s Server) Redirects() bool { return s.Kind() == TakesHTTP && s.TLS != nil && s.TLS.Redirect }

// Serves reports whether the server has a host, whatever the namespace.
func (s Server) Serves(host string) bool {
	return slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Name == host })
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
	return s.Port == o.Port && s.PortName == o.PortName && s.Name == o.Name && s.Protocol == o.Protocol && s.Bind == o.Bind && s.Field == o.Field &&
		slices.Equal(s.Hosts, o.Hosts) && s.TLS.Equal(o.TLS)
}

// AppendTo appends an unambiguous form of all fields.
func (s Server) AppendTo(b []byte) []byte {
	b = AppendTexts(binary.AppendUvarint(b, uint64(s.Port)), s.PortName, s.Name, s.Bind, s.Field)
	b = binary.AppendUvarint(append(b, byte(s.Protocol)), uint64(len(s.Hosts)))
	for _, h := range s.Hosts {
		b = AppendTexts(b, h.Namespace, h.Name)
	}
	if s.TLS == nil {
		return append(b, 0)
	}
	return s.TLS.appendTo(append(b, 1))
}

func (t *TLS) appendTo(b []byte) []byte {
	b = append(b, byte(t.Mode), flag(t.Redirect), flag(t.SkipVerify), byte(t.Min), byte(t.Max))
	b = AppendTexts(b, t.RootsCredential, t.Roots, t.CRL)
	for _, list := range [][]string{t.Credentials, t.SubjectAltNames, t.SPKI, t.Hashes, t.Ciphers, t.Curves} {
		b = AppendTexts(binary.AppendUvarint(b, uint64(len(list))), list...)
	}
	b = binary.AppendUvarint(b, uint64(len(t.Certificates)))
	for _, pair := range t.Certificates {
		b = AppendTexts(b, pair[0], pair[1])
	}
	return b
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// AppendTexts appends each text behind its length.
func AppendTexts(b []byte, texts ...string) []byte {
	for _, text := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return b
}
