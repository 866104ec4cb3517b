package ca

import (
	"crypto/x509"
	"fmt"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"
)

// Trusted are roots that the mesh configuration adds to the roots of the authority. They never change.
type Trusted struct{ list []trusted }

// trusted are roots for some signers; for all certificates if there are none.
type trusted struct {
	roots   []*x509.Certificate
	signers []string
}

// NewTrusted reads caCertificates of the mesh configuration. bundle returns the roots in the SPIFFE bundle at an address, as PEM; empty if
// they are not known. NewTrusted leaves out roots that cannot be read, and returns an error for each.
func NewTrusted(list []*meshconfig.MeshConfig_CertificateData, bundle func(from string) string) (*Trusted, []error) {
	t := &Trusted{}
	var errs []error
	for i, data := range list {
		text, field := data.GetPem(), "pem"
		if from := data.GetSpiffeBundleUrl(); from != "" {
			text, field = bundle(from), "spiffeBundleUrl"
		}
		if text == "" {
			continue // a problem says so
		}
		roots, err := parseCertificates([]byte(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("caCertificates[%d].%s of the mesh configuration: %w", i, field, err))
			continue
		}
		t.list = append(t.list, trusted{roots, data.GetCertSigners()})
	}
	return t, errs
}

// Of returns the roots for certificates of a signer; an empty name means the authority of the mesh.
func (t *Trusted) Of(signer string) (roots []*x509.Certificate) {
	for _, one := range t.list {
		if len(one.signers) == 0 || slices.Contains(one.signers, signer) {
			roots = append(roots, one.roots...)
		}
	}
	return unique(roots)
}

// All returns the roots for whatever is signed.
func (t *Trusted) All() (roots []*x509.Certificate) {
	for _, one := range t.list {
		roots = append(roots, one.roots...)
	}
	return unique(roots)
}
