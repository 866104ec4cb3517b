package credential

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

// stapled returns an OCSP response of an authority about a serial number.
func stapled(t testing.TB, authority material, serial int64, until time.Time) string {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(authority.cert), []byte(authority.key))
	if err != nil {
		t.Fatal(err)
	}
	by, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	about := ocsp.Response{Status: ocsp.Good, SerialNumber: big.NewInt(serial), ThisUpdate: until.Add(-24 * time.Hour), NextUpdate: until}
	der, err := ocsp.CreateResponse(by, by, about, pair.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	return string(der)
}

// TestStaple: only an OCSP response that Envoy takes beside the certificate is taken in, and whatever is wrong with it, the certificate stays.
func TestStaple(t *testing.T) {
	a := newMaterial(t, "a", tomorrow())
	good, old := stapled(t, a, 1, tomorrow()), stapled(t, a, 1, time.Now().Add(-time.Hour))
	for _, c := range []struct{ name, staple, want, flaw string }{
		{"none", "", "", ""},
		{"good", good, good, ""},
		{"expired", old, old, "[tls.ocsp-staple]: it has expired on "},
		{"of another certificate", stapled(t, a, 2, tomorrow()), "", "[tls.ocsp-staple]: it is about another certificate"},
		{"half", good[:len(good)/2], "", "[tls.ocsp-staple]: it is no OCSP response"},
		{"a refusal of the responder", string(ocsp.TryLaterErrorResponse), "", "[tls.ocsp-staple]: it is no OCSP response"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, flaws := Parse(bytesOf(map[string]string{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": c.staple}))
			if _, _, ok := s.Pair(); !ok || string(s.Staple()) != c.want {
				t.Errorf("the pair is there: %t, the staple has %d bytes", ok, len(s.Staple()))
			}
			if got := fmt.Sprint(texts(flaws)); len(flaws) > 1 || !strings.Contains(got, c.flaw) || (c.flaw == "") != (len(flaws) == 0) {
				t.Errorf("flaws %s, want %q", got, c.flaw)
			}
		})
	}
	with, _ := Parse(bytesOf(map[string]string{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": good}))
	without, _ := Parse(bytesOf(map[string]string{"tls.crt": a.cert, "tls.key": a.key}))
	broken, _ := Parse(bytesOf(map[string]string{"tls.crt": "x", "tls.key": a.key}))
	if with.Equal(without) || !bytes.Equal(broken.Or(with).Staple(), with.Staple()) {
		t.Error("the staple does not belong to the certificate")
	}
}
