package credential

import (
	"crypto/x509"
	"fmt"
	"time"

	"golang.org/x/crypto/ocsp"
)

// parseStaple takes in the OCSP response that servers staple to the certificate. Envoy refuses a certificate together with a response that
// it cannot read, or that is about another certificate, so that such a response is left out. It does not staple one that has expired.
func (s *Secret) parseStaple(der []byte, leaf *x509.Certificate) []Flaw {
	if len(der) == 0 {
		return nil
	}
	flaw := func(reason string) []Flaw { return []Flaw{{Entries: []string{TLSStaple}, Reason: reason}} }
	r, err := ocsp.ParseResponse(der, nil)
	switch {
	case err != nil:
		return flaw("it is no OCSP response in DER form about one certificate, and is left out; ask the OCSP responder of the authority for one")
	case r.SerialNumber.Cmp(leaf.SerialNumber) != 0:
		return flaw("it is about another certificate, and is left out; renew it together with the certificate")
	}
	s.staple = der
	if !r.NextUpdate.IsZero() && time.Now().After(r.NextUpdate) {
		return flaw(fmt.Sprintf("it has expired on %s, and is not stapled; renew it", r.NextUpdate.UTC().Format(time.RFC3339)))
	}
	return nil
}
