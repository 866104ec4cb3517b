package secret

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// unpack is the secret of an answer.
func unpack(t *testing.T, a Answer) *tlsv3.Secret {
	t.Helper()
	s := &tlsv3.Secret{}
	if err := a.resource.UnmarshalTo(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRoots(t *testing.T) {
	a, b := newMaterial(t, "a", tomorrow()), newMaterial(t, "b", tomorrow())
	odd := block(certificateBlock, []byte("strange"))
	for _, c := range []struct{ name, text, want, remark, err string }{
		{"one", a.cert, a.cert, "", ""},
		{"two, with remarks between", "# first\n" + a.cert + "\nsecond:\n" + b.cert, a.cert + b.cert, "", ""},
		{"with a revocation list", a.cert + a.crl, a.cert + a.crl, "", ""},
		{"a strange one among good ones", a.cert + odd + b.cert, a.cert + b.cert, "1 of its 3 PEM blocks are not used", ""},
		{"a key among them", a.cert + a.key, a.cert, "a PRIVATE KEY is no root", ""},
		{"empty", "", "", "", "it has no PEM block"},
		{"garbage", "garbage", "", "", "it has no PEM block"},
		{"being written", a.cert + b.cert[:len(b.cert)/2], "", "", "1 of its 2 PEM blocks cannot be read"},
		{"strange ones only", odd, "", "", "no certificate that can be read"},
		{"a key only", a.key, "", "", "no certificate that can be read"},
		{"a revocation list only", a.crl, "", "", "no certificate that can be read"},
		{"a broken revocation list", a.cert + block("X509 CRL", []byte("x")), "", "", "a revocation list in it cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := makeRoots("n", "/f", []byte(c.text), nil)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), "/f: ") || got.Good() {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s := unpack(t, got)
			if text := string(s.GetValidationContext().GetTrustedCa().GetInlineBytes()); s.GetName() != "n" || text != c.want || !strings.Contains(got.Remark, c.remark) || (c.remark == "") != (got.Remark == "") {
				t.Errorf("%s, %q\n%s", s.GetName(), got.Remark, text)
			}
		})
	}
}

func TestPair(t *testing.T) {
	a, b := newMaterial(t, "a", tomorrow()), newMaterial(t, "b", tomorrow())
	old := newMaterial(t, "old", time.Now().Add(-time.Hour))
	for _, c := range []struct{ name, cert, key, chain, remark, err string }{
		{"alone", a.cert, a.key, a.cert, "", ""},
		{"with a chain", a.cert + b.cert, a.key, a.cert + b.cert, "", ""},
		{"all in one file", a.cert + a.key, a.cert + a.key, a.cert, "", ""},
		{"expired", old.cert, old.key, old.cert, "the certificate has expired", ""},
		{"of another", a.cert, b.key, "", "", "/c and /k: private key does not match"},
		{"no certificate", a.key, a.key, "", "", "/c: it has no certificate"},
		{"no key", a.cert, a.cert, "", "", "/k: it has no private key"},
		{"key garbage", a.cert, block("PRIVATE KEY", []byte("x")), "", "", "/c and /k: failed to parse private key"},
		{"key encrypted", a.cert, block("ENCRYPTED PRIVATE KEY", []byte("x")), "", "", "/k: the key is encrypted"},
		{"key being written", a.cert, a.key[:60], "", "", "/k: 1 of its 1 PEM blocks cannot be read"},
		{"chain broken", a.cert + block(certificateBlock, []byte("x")), a.key, "", "", "/c: a certificate in it cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := makePair("n", []string{"/c", "/k"}, []byte(c.cert), []byte(c.key))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || got.Good() {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s := unpack(t, got)
			cert := s.GetTlsCertificate()
			if chain := cert.GetCertificateChain().GetInlineBytes(); string(chain) != c.chain || !strings.Contains(c.key, string(cert.GetPrivateKey().GetInlineBytes())) || got.Expires.IsZero() {
				t.Errorf("%v\n%s", got.Expires, chain)
			}
			if (c.remark == "") != (got.Remark == "") || !strings.Contains(got.Remark, c.remark) {
				t.Errorf("remark %q", got.Remark)
			}
		})
	}
}

// TestNoKeyShown: printing an answer never prints its content.
func TestNoKeyShown(t *testing.T) {
	a := newMaterial(t, "a", tomorrow())
	got, err := makePair("n", []string{"/c", "/k"}, []byte(a.cert), []byte(a.key))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(got), fmt.Sprintf("%+v", got), fmt.Sprintf("%#v", got), fmt.Sprintf("%+v", Entry{Answer: got}.status())} {
		if strings.Contains(text, "KEY") || strings.Contains(text, "45 45 45") || len(text) > 300 {
			t.Errorf("shown: %s", text)
		}
	}
}

// TestSystemRoots: the CA bundle of this machine can be served.
func TestSystemRoots(t *testing.T) {
	s := &fileSecret{sources: sources{alternatives: systemBundles()}}
	if s.choose() == nil {
		if err := s.noFile("file-root:system"); !strings.Contains(err.Error(), "ca-certificates") {
			t.Error(err)
		}
		t.Skip("this machine has no bundle of roots")
	}
	a, err := s.read("file-root:system", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(a.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	got := bytes.Count(unpack(t, a).GetValidationContext().GetTrustedCa().GetInlineBytes(), []byte("-----BEGIN CERTIFICATE"))
	if want := bytes.Count(text, []byte("-----BEGIN CERTIFICATE")); got == 0 || got != want && a.Remark == "" {
		t.Errorf("%d of %d certificates of %s", got, want, a.Files[0])
	}
}
