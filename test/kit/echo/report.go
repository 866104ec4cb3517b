package echo

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"

	"github.com/pilotmesh/pilot/test/kit/certs"
)

// Report is a server's description of itself and of a request that it received.
type Report struct {
	Name     string      `json:"name"`
	Version  string      `json:"version,omitempty"`
	Protocol string      `json:"protocol"`         // HTTP/1.1, HTTP/2.0, gRPC, tcp-server-first, tcp-client-first, udp
	Remote   string      `json:"remote"`           // the peer's address
	Local    string      `json:"local"`            // the address that the peer reached in the end
	Method   string      `json:"method,omitempty"` // from here on as far as the protocol has it
	Host     string      `json:"host,omitempty"`
	Path     string      `json:"path,omitempty"` // with the query
	Headers  http.Header `json:"headers,omitempty"`
	Bytes    int64       `json:"bytes"` // of the request's body
	TLS      *TLS        `json:"tls,omitempty"`
}

// TLS is what a server saw of the connection's encryption.
type TLS struct {
	Version string `json:"version"`
	SNI     string `json:"sni,omitempty"`
	ALPN    string `json:"alpn,omitempty"`
	Peer    string `json:"peer,omitempty"` // what the client's certificate is called (certs.Name)
}

// About reports a connection. An address that is not known is nil.
func About(protocol string, remote, local net.Addr) Report {
	r := Report{Protocol: protocol}
	if remote != nil {
		r.Remote = remote.String()
	}
	if local != nil {
		r.Local = local.String()
	}
	return r
}

// Request reports an HTTP request. Its body is not read.
func Request(r *http.Request) Report {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	report := About(r.Proto, nil, local)
	report.Remote, report.Method, report.Host, report.Path, report.Headers = r.RemoteAddr, r.Method, r.Host, r.RequestURI, r.Header
	report.TLS = Encryption(r.TLS)
	return report
}

// Encryption reports the state of a TLS connection; nil is for a connection without TLS.
func Encryption(s *tls.ConnectionState) *TLS {
	if s == nil {
		return nil
	}
	t := &TLS{Version: tls.VersionName(s.Version), SNI: s.ServerName, ALPN: s.NegotiatedProtocol}
	if len(s.PeerCertificates) > 0 {
		t.Peer = certs.Name(s.PeerCertificates[0])
	}
	return t
}

// Answer sends a report as the answer to an HTTP request.
func Answer(w http.ResponseWriter, r Report) {
	w.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(w).Encode(r) // the peer may have gone: then no one is left to answer
}
