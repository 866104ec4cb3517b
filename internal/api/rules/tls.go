package rules

import (
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// IsCurve reports whether Envoy has a curve of this name.
func IsCurve(name string) bool {
	return slices.Contains([]string{"P-256", "P-384", "P-521", "X25519", "X25519MLKEM768"}, name)
}

// IsCipher reports whether Envoy has a cipher suite of this name for TLS 1.2.
func IsCipher(name string) bool {
	return slices.Contains([]string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
		"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA",
	}, name)
}

// meshTLS checks the settings of the mesh for TLS.
func (c *checker) meshTLS(p *document.Path, name string, s *meshconfig.MeshConfig_TLSConfig) {
	c.known(p.Field(name).Field("ecdhCurves"), s.GetEcdhCurves(), "curve", IsCurve)
	c.known(p.Field(name).Field("cipherSuites"), s.GetCipherSuites(), "cipher suite", IsCipher)
}

// known warns of names in a list that are not known, and that are named twice.
func (c *checker) known(p *document.Path, names []string, what string, is func(string) bool) {
	seen := map[string]bool{}
	for i, name := range names {
		if !is(name) {
			c.warn(p.At(i), "%s is not a %s that is known here: ignored", document.Quote(name), what)
		}
		if seen[name] {
			c.warn(p.At(i), "%s is named twice", document.Quote(name))
		}
		seen[name] = true
	}
}
