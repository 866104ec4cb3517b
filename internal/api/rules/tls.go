package rules

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/destination"
	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/check"
)

// certificateFiles are the settings of a server for certificates in files.
type certificateFiles interface {
	GetServerCertificate() string
	GetPrivateKey() string
	GetCaCertificates() string
}

// serverTLS checks TLS of a server: of a gateway, or of an ingress listener of a sidecar.
func (c *checker) serverTLS(p *document.Path, t *networking.ServerTLSSettings) {
	if t == nil {
		return
	}
	c.Ciphers(p.Field("cipherSuites"), t.CipherSuites)
	c.Curves(p.Field("ecdhCurves"), t.EcdhCurves)
	low, high := t.MinProtocolVersion, t.MaxProtocolVersion
	if (low == networking.ServerTLSSettings_TLSV1_0 || low == networking.ServerTLSSettings_TLSV1_1) && len(t.CipherSuites) == 0 {
		c.Warn(p.Field("minProtocolVersion"), "%s needs cipherSuites that it has; without them clients of that version are refused", low)
	}
	if low != 0 && high != 0 && low > high {
		c.Fail(p.Field("minProtocolVersion"), "%s is above the maximum %s", low, high)
	}
	sources := certificateSettings(t)
	switch t.Mode {
	case networking.ServerTLSSettings_ISTIO_MUTUAL:
		for _, name := range sources {
			if name != "caCrl" {
				c.Fail(p.Field(name), "mode ISTIO_MUTUAL uses the certificates of the mesh; remove it, or use another mode")
			}
		}
		return
	case networking.ServerTLSSettings_PASSTHROUGH, networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		for _, name := range sources {
			c.Warn(p.Field(name), "has no effect in mode %s, which does not end TLS", t.Mode)
		}
	}
	c.certificateSources(p, t)
	c.configMaps(p, t)
	if t.Mode != networking.ServerTLSSettings_PASSTHROUGH && t.Mode != networking.ServerTLSSettings_AUTO_PASSTHROUGH {
		c.terminatedTLS(p, t)
	}
}

// certificateSettings returns the names of the settings for certificates that are used.
func certificateSettings(t *networking.ServerTLSSettings) (names []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"serverCertificate", t.ServerCertificate != ""}, {"privateKey", t.PrivateKey != ""}, {"caCertificates", t.CaCertificates != ""},
		{"tlsCertificates", len(t.TlsCertificates) > 0}, {"credentialName", t.CredentialName != ""}, {"credentialNames", len(t.CredentialNames) > 0},
		{"caCrl", t.CaCrl != ""},
	} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}

// certificateSources checks that the certificate of a server comes from one place.
func (c *checker) certificateSources(p *document.Path, t *networking.ServerTLSSettings) {
	first := ""
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"serverCertificate", t.ServerCertificate != "" && t.PrivateKey != ""}, {"credentialName", t.CredentialName != ""},
		{"credentialNames", len(t.CredentialNames) > 0}, {"tlsCertificates", len(t.TlsCertificates) > 0},
	} {
		switch {
		case !f.set:
		case first == "":
			first = f.name
		default:
			c.Fail(p.Field(f.name), "excludes %s; take the certificate from one of them", first)
		}
	}
	for _, l := range []struct {
		name string
		n    int
	}{{"credentialNames", len(t.CredentialNames)}, {"tlsCertificates", len(t.TlsCertificates)}} {
		if l.n > 2 {
			c.Fail(p.Field(l.name), "has %d entries, the limit is 2: one for each kind of key", l.n)
		}
	}
}

// configMaps warns of ConfigMaps where a certificate with its key is needed, and of names of none.
func (c *checker) configMaps(p *document.Path, t *networking.ServerTLSSettings) {
	if strings.HasPrefix(t.CredentialName, destination.ConfigMapScheme) {
		c.Warn(p.Field("credentialName"), check.NoPair)
	}
	for i, name := range t.CredentialNames {
		if strings.HasPrefix(name, destination.ConfigMapScheme) {
			c.Warn(p.Field("credentialNames").At(i), check.NoPair)
		}
	}
	if rest, ok := strings.CutPrefix(t.CaCertCredentialName, destination.ConfigMapScheme); ok {
		if namespace, name, _ := strings.Cut(rest, "/"); namespace == "" || name == "" {
			c.Warn(p.Field("caCertCredentialName"), "%s does not have the form configmap://namespace/name, so clients are refused", document.Quote(t.CaCertCredentialName))
		}
	}
}

// terminatedTLS checks the certificates of a server that ends TLS.
func (c *checker) terminatedTLS(p *document.Path, t *networking.ServerTLSSettings) {
	secret := t.CredentialName != "" || len(t.CredentialNames) > 0
	if secret {
		if t.CaCrl != "" {
			c.Fail(p.Field("caCrl"), "has no effect beside a credential; write the revocation list into the Secret, as ca.crl")
		}
		return
	}
	hasCA := t.CaCertificates != ""
	if len(t.TlsCertificates) == 0 {
		c.certificate(p, t)
	} else {
		all := true
		for i, pair := range t.TlsCertificates {
			c.certificate(p.Field("tlsCertificates").At(i), pair)
			all = all && pair.GetCaCertificates() != ""
		}
		hasCA = hasCA || all
	}
	if t.Mode == networking.ServerTLSSettings_SIMPLE {
		if t.CaCrl != "" {
			c.Fail(p.Field("caCrl"), "mode SIMPLE asks clients for no certificate; remove it, or use mode MUTUAL")
		}
	} else if !hasCA {
		c.Fail(p.Field("caCertificates"), "mode %s needs the CA of the clients", t.Mode)
	}
}

func (c *checker) certificate(p *document.Path, pair certificateFiles) {
	if pair.GetServerCertificate() == "" {
		c.Fail(p.Field("serverCertificate"), "TLS needs a certificate")
	}
	if pair.GetPrivateKey() == "" {
		c.Fail(p.Field("privateKey"), "TLS needs a private key")
	}
}

// inboundTLS checks TLS of an inbound listener for clients that are not in the mesh.
func (c *checker) inboundTLS(p *document.Path, t *networking.ServerTLSSettings) {
	if t.Mode != networking.ServerTLSSettings_SIMPLE && t.Mode != networking.ServerTLSSettings_MUTUAL && t.Mode != networking.ServerTLSSettings_OPTIONAL_MUTUAL {
		c.Fail(p.Field("mode"), "must be SIMPLE or MUTUAL, not %s: TLS within the mesh is a matter of PeerAuthentication", t.Mode)
		return
	}
	if t.HttpsRedirect {
		c.Fail(p.Field("httpsRedirect"), "is for gateways only")
	}
	if len(t.SubjectAltNames) > 0 {
		c.Fail(p.Field("subjectAltNames"), "is for gateways only")
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"credentialName", t.CredentialName != ""}, {"credentialNames", len(t.CredentialNames) > 0}} {
		if f.set {
			c.Fail(p.Field(f.name), "is for gateways only; name files")
			return
		}
	}
	c.serverTLS(p, t)
}
