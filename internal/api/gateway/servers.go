package gateway

import (
	"cmp"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// ServersOf returns the servers of a Gateway in a namespace.
func ServersOf(spec *networking.Gateway, namespace string) []Server {
	list := make([]Server, 0, len(spec.Servers))
	for i, s := range spec.Servers {
		protocol, _ := mesh.ParseProtocol(s.GetPort().GetProtocol())
		server := Server{
			Port: s.GetPort().GetNumber(), PortName: s.GetPort().GetName(), Name: s.Name, Protocol: protocol, Bind: bindOf(s.Bind),
			Field: "spec.servers[" + strconv.Itoa(i) + "]", TLS: gatewayTLS(s.Tls),
		}
		for _, host := range s.Hosts {
			server.Hosts = append(server.Hosts, hostOf(host, namespace))
		}
		list = append(list, server)
	}
	return list
}

// gatewayTLS returns the settings of a server for TLS.
func gatewayTLS(s *networking.ServerTLSSettings) *TLS {
	if s == nil {
		return nil
	}
	t := &TLS{
		Mode:     modeOf(s.Mode),
		Redirect: s.HttpsRedirect, Credentials: s.CredentialNames, RootsCredential: s.CaCertCredentialName, Roots: s.CaCertificates, CRL: s.CaCrl,
		SubjectAltNames: s.SubjectAltNames, SPKI: s.VerifyCertificateSpki, Hashes: s.VerifyCertificateHash, SkipVerify: s.InsecureSkipVerify.GetValue(),
		Min: minorTLS(s.MinProtocolVersion), Max: minorTLS(s.MaxProtocolVersion), Ciphers: api.Ciphers(s.CipherSuites), Curves: api.Curves(s.EcdhCurves),
	}
	if len(t.Credentials) == 0 && s.CredentialName != "" {
		t.Credentials = []string{s.CredentialName}
	}
	for _, pair := range s.TlsCertificates {
		t.Certificates = append(t.Certificates, [2]string{pair.ServerCertificate, pair.PrivateKey})
		t.Roots = cmp.Or(t.Roots, pair.CaCertificates)
	}
	if len(t.Certificates) == 0 && s.ServerCertificate != "" {
		t.Certificates = [][2]string{{s.ServerCertificate, s.PrivateKey}}
	}
	return t
}

// modeOf is the mode of a server for TLS.
func modeOf(m networking.ServerTLSSettings_TLSmode) TLSMode {
	switch m {
	case networking.ServerTLSSettings_MUTUAL:
		return TLSMutual
	case networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		return TLSOptional
	case networking.ServerTLSSettings_ISTIO_MUTUAL:
		return TLSMesh
	case networking.ServerTLSSettings_PASSTHROUGH:
		return TLSPass
	case networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return TLSPassMesh
	case networking.ServerTLSSettings_SIMPLE:
	}
	return TLSSimple
}

// minorTLS is the minor version of a version of TLS 1, or compliance.VersionTLS10; 0 if it is left open.
func minorTLS(v networking.ServerTLSSettings_TLSProtocol) uint32 {
	if v == networking.ServerTLSSettings_TLSV1_0 {
		return compliance.VersionTLS10
	}
	return uint32(max(v, networking.ServerTLSSettings_TLSV1_0) - networking.ServerTLSSettings_TLSV1_0)
}
