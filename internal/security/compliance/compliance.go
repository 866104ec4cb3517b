// Package compliance restricts TLS to the versions, key exchanges and cipher suites that a policy of the operator allows (COMPLIANCE_POLICY),
// whatever configuration says. That is necessary and not sufficient for a claim of compliance, which also needs validated modules.
//
// It holds values only, and has no goroutines.
package compliance

import (
	"crypto/tls"
	"fmt"
)

// Policy is a value of COMPLIANCE_POLICY, with the meaning that it has in Istio.
type Policy string

// The policies.
const (
	// None restricts nothing.
	None Policy = ""
	// FIPS allows TLS 1.2 with the curve P-256 and AES-GCM.
	FIPS Policy = "fips-140-2"
	// PQC allows TLS 1.3 with the key exchange X25519MLKEM768, which resists quantum computers. Neither Envoy nor Go lets one choose
	// cipher suites of TLS 1.3.
	PQC Policy = "pqc"
)

// Parse returns the policy of a name.
func Parse(name string) (Policy, error) {
	switch p := Policy(name); p {
	case None, FIPS, PQC:
		return p, nil
	}
	return None, fmt.Errorf("%q is none of the policies %q and %q", name, FIPS, PQC)
}

// VersionTLS10 is TLS 1.0 where a minor version is expected: 0 leaves the version open.
const VersionTLS10 = 10

// Parameters are the parameters of TLS of an Envoy.
type Parameters struct {
	// Min and Max are minor versions of TLS 1, or VersionTLS10; 0 for the usual ones.
	Min, Max uint32
	// Curves and Ciphers are names that Envoy knows; empty for all that are usual.
	Curves, Ciphers []string
}

// Restrict returns the parameters that the policy allows instead of the given ones.
func (p Policy) Restrict(given Parameters) Parameters {
	switch p {
	case FIPS:
		return Parameters{Min: 2, Max: 2, Curves: []string{"P-256"}, Ciphers: []string{
			"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		}}
	case PQC:
		return Parameters{Min: 3, Max: 3, Curves: []string{"X25519MLKEM768"}}
	}
	return given
}

// Apply restricts the settings of a client or server in Go.
func (p Policy) Apply(c *tls.Config) {
	switch p {
	case FIPS:
		c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		c.CurvePreferences = []tls.CurveID{tls.CurveP256}
		c.CipherSuites = []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		}
	case PQC:
		c.MinVersion, c.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
		c.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768}
	}
}
