package main

import (
	"crypto/tls"
	"net"
	"net/http"
)

// Report is what a server tells of itself and of what it saw of a request.
type Report struct {
	Name     string      `json:"name"`
	Version  string      `json:"version,omitempty"`
	Protocol string      `json:"protocol"`         // HTTP/1.1, HTTP/2.0, gRPC, tcp-server-first, tcp-client-first, udp
	Remote   string      `json:"remote"`           // the peer's address
	Local    string      `json:"local"`            // the address that the peer reached in the end
	Method   string      `json:"method,omitempty"` // from here on as far as the protocol has it
	Host     string      `json:"host,omitempty"`
	Path     string      `json:"path,omitempty"`
	Headers  http.Header `json:"headers,omitempty"`
	Bytes    int64       `json:"bytes"` // of the request's body
	TLS      *TLS        `json:"tls,omitempty"`
}

// TLS is what a server saw of the connection's encryption.
type TLS struct {
	Version string `json:"version"`
	SNI     string `json:"sni,omitempty"`
	ALPN    string `json:"alpn,omitempty"`
	Peer    string `json:"peer,omitempty"` // the subject of the client's certificate
}

func describe(s *tls.ConnectionState) *TLS {
	if s == nil {
		return nil
	}
	t := &TLS{Version: tls.VersionName(s.Version), SNI: s.ServerName, ALPN: s.NegotiatedProtocol}
	if len(s.PeerCertificates) > 0 {
		t.Peer = s.PeerCertificates[0].Subject.String()
	}
	return t
}

// about fills in what is known before anything was read.
func (s *server) about(protocol string, remote, local net.Addr) Report {
	r := Report{Name: s.name, Version: s.version, Protocol: protocol, Remote: remote.String()}
	if local != nil {
		r.Local = local.String()
	}
	return r
}
