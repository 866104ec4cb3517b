package traffic

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/destination"
	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/check"
)

// maxServerName is the limit of Envoy for a server name, in bytes.
const maxServerName = 255

// ClientTLS checks TLS towards a server.
func ClientTLS(c *check.Checker, p *document.Path, t *networking.ClientTLSSettings) {
	if t == nil {
		return
	}
	idleTLS(c, p, t)
	credential(c, p.Field("credentialName"), t.CredentialName)
	if t.Mode == networking.ClientTLSSettings_MUTUAL && strings.HasPrefix(t.CredentialName, destination.ConfigMapScheme) {
		c.Warn(p.Field("credentialName"), check.NoPair+", or use mode SIMPLE")
	}
	serverName(c, p.Field("sni"), t.Sni)
	simple, mutual := t.Mode == networking.ClientTLSSettings_SIMPLE, t.Mode == networking.ClientTLSSettings_MUTUAL
	if !simple && !mutual {
		return
	}
	if t.InsecureSkipVerify.GetValue() {
		unverified(c, p, t, simple)
	}
	if t.CredentialName != "" {
		if t.ClientCertificate != "" || t.PrivateKey != "" || t.CaCertificates != "" || t.CaCrl != "" {
			c.Fail(p.Field("credentialName"), "excludes certificates in files; keep one of the two")
		}
		return
	}
	if mutual {
		if t.ClientCertificate == "" {
			c.Fail(p.Field("clientCertificate"), "mutual TLS needs a certificate, or credentialName")
		}
		if t.PrivateKey == "" {
			c.Fail(p.Field("privateKey"), "mutual TLS needs a private key, or credentialName")
		}
		secretFile(c, p.Field("clientCertificate"), t.ClientCertificate)
		secretFile(c, p.Field("privateKey"), t.PrivateKey)
	}
}

// unverified refuses settings for verification beside insecureSkipVerify.
func unverified(c *check.Checker, p *document.Path, t *networking.ClientTLSSettings, simple bool) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"caCertificates", t.CaCertificates != ""}, {"caCrl", t.CaCrl != ""}, {"subjectAltNames", len(t.SubjectAltNames) > 0},
		{"credentialName", simple && t.CredentialName != ""},
	} {
		if f.set {
			c.Fail(p.Field("insecureSkipVerify"), "excludes %s: a server that is not verified needs no CA and no names; keep one of the two", f.name)
		}
	}
}

// idleTLS warns of TLS settings that have no effect in their mode.
func idleTLS(c *check.Checker, p *document.Path, t *networking.ClientTLSSettings) {
	type setting struct {
		name string
		set  bool
	}
	own := []setting{{"clientCertificate", t.ClientCertificate != ""}, {"privateKey", t.PrivateKey != ""}}
	roots := []setting{{"caCertificates", t.CaCertificates != ""}, {"caCrl", t.CaCrl != ""}}
	credential := setting{"credentialName", t.CredentialName != ""}
	names, verify := setting{"subjectAltNames", len(t.SubjectAltNames) > 0}, setting{"insecureSkipVerify", t.InsecureSkipVerify.GetValue()}
	warn := func(reason string, list ...setting) {
		for _, s := range list {
			if s.set {
				c.Warn(p.Field(s.name), "%s", reason)
			}
		}
	}
	switch t.Mode {
	case networking.ClientTLSSettings_DISABLE:
		const reason = "does nothing: mode DISABLE sends plain text; choose another mode, or remove it"
		warn(reason, own...)
		warn(reason, roots...)
		warn(reason, credential, names, verify, setting{"sni", t.Sni != ""})
	case networking.ClientTLSSettings_SIMPLE:
		warn("does nothing: mode SIMPLE shows the server no certificate; use mode MUTUAL, or remove it", own...)
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		const reason = "does nothing: mode ISTIO_MUTUAL uses the certificates of the mesh; use mode MUTUAL, or remove it"
		warn(reason, own...)
		warn(reason, roots...)
		warn(reason, credential)
		warn("does nothing: mode ISTIO_MUTUAL always verifies the server; use mode SIMPLE or MUTUAL, or remove it", verify)
	}
}

// secretFile warns of a path with "~", because the name of a secret consists of two paths with "~" between them.
func secretFile(c *check.Checker, p *document.Path, path string) {
	if strings.Contains(path, "~") {
		c.Warn(p, "has a ~, which sidecars take for the end of the certificate's path: connections will fail; rename the file")
	}
}

// credential checks the reference to a CA in a ConfigMap: it must be one of the own namespace.
func credential(c *check.Checker, p *document.Path, name string) {
	rest, ok := strings.CutPrefix(name, destination.ConfigMapScheme)
	if !ok {
		return
	}
	namespace, configMap, ok := strings.Cut(rest, "/")
	switch {
	case !ok || configMap == "" || namespace == "" || strings.Contains(configMap, "/"):
		c.Fail(p, "%s does not have the form configmap://namespace/name", document.Quote(name))
	case namespace != c.Namespace:
		c.Fail(p, "%s is in another namespace; a rule takes CAs of its own namespace only", document.Quote(name))
	}
}

// serverName checks the server name that a client names in its first TLS message.
func serverName(c *check.Checker, p *document.Path, name string) {
	c.AtMostBytes(p, name, maxServerName)
	if strings.Contains(name, "\x00") {
		c.Fail(p, "has a NUL character, which no server name has; remove it")
	}
}
