package secret_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"github.com/pilotmesh/pilot/internal/xds/secret"
)

// TestStaple: a certificate is sent with the OCSP response of its Secret, and without a response that Envoy would refuse it for.
func TestStaple(t *testing.T) {
	cert, key := material(t)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	by, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	about := func(serial *big.Int) string {
		der, err := ocsp.CreateResponse(by, by, ocsp.Response{SerialNumber: serial, ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}, pair.PrivateKey.(crypto.Signer))
		if err != nil {
			t.Fatal(err)
		}
		return string(der)
	}
	good := about(by.SerialNumber)
	w := newWorld(t, secret.Options{Folder: true})
	w.put("", "shop", "good", map[string]string{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": good})
	w.put("", "shop", "bad", map[string]string{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": about(new(big.Int).Add(by.SerialNumber, big.NewInt(1)))})
	if got := w.asks("web-0.shop", "shop/any", "kubernetes://good")(); !strings.HasSuffix(got, cert+key+" stapled "+good) {
		t.Errorf("got %q", got)
	}
	if got := w.asks("web-1.shop", "shop/any", "kubernetes://bad")(); !strings.HasSuffix(got, cert+key) {
		t.Errorf("got %q", got)
	}
}
