package credential

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// material is a certificate that signs itself, with its key, as PEM; crl revokes nothing.
type material struct{ cert, key, crl string }

func newMaterial(t testing.TB, name string, notAfter time.Time) material {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return materialOf(t, name, notAfter, key)
}

// rsaMaterial has an RSA key.
func rsaMaterial(t testing.TB, bits int) material {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return materialOf(t, "rsa", tomorrow(), key)
}

func materialOf(t testing.TB, name string, notAfter time.Time, key crypto.Signer, changes ...func(*x509.Certificate)) material {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter,
		DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte(name),
	}
	for _, change := range changes {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crl, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: notAfter.Add(-time.Hour), NextUpdate: notAfter}, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return material{block(certificateBlock, der), block("PRIVATE KEY", keyDER), block(crlBlock, crl)}
}

// namelessMaterial has no subject alternative name.
func namelessMaterial(t testing.TB, usage ...x509.ExtKeyUsage) material {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return materialOf(t, "shop.example.com", tomorrow(), key, func(c *x509.Certificate) { c.DNSNames, c.ExtKeyUsage = nil, usage })
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

func TestParse(t *testing.T) {
	a, b, old := newMaterial(t, "a", tomorrow()), newMaterial(t, "b", tomorrow()), newMaterial(t, "old", time.Now().Add(-time.Hour))
	small, large := rsaMaterial(t, 1024), rsaMaterial(t, 2048)
	nameless, client := namelessMaterial(t), namelessMaterial(t, x509.ExtKeyUsageClientAuth)
	for _, c := range []struct {
		name              string
		entries           map[string]string
		chain, roots, crl string
		flaw              string // the faulty entries and the reason
	}{
		{"TLS", map[string]string{"tls.crt": a.cert + b.cert, "tls.key": a.key}, a.cert + b.cert, "", "", ""},
		{"TLS with roots and revocation lists", map[string]string{"tls.crt": a.cert, "tls.key": a.key, "ca.crt": b.cert, "ca.crl": b.crl}, a.cert, b.cert, b.crl, ""},
		{"generic", map[string]string{"cert": a.cert, "key": a.key, "cacert": b.cert, "crl": b.crl}, a.cert, b.cert, b.crl, ""},
		{"generic goes before TLS", map[string]string{"cert": a.cert, "key": a.key, "tls.crt": b.cert, "tls.key": b.key}, a.cert, "", "", ""},
		{"half generic beside TLS", map[string]string{"cert": a.cert, "tls.crt": b.cert, "tls.key": b.key}, b.cert, "", "", ""},
		{"roots alone", map[string]string{"cacert": b.cert}, "", b.cert, "", ""},
		{"empty entries count as missing", map[string]string{"tls.crt": "", "tls.key": "", "ca.crt": b.cert}, "", b.cert, "", ""},
		{"nothing", nil, "", "", "", "[]: it has nothing for TLS"},
		{"only something else", map[string]string{"password": "hunter2"}, "", "", "", "[]: it has nothing for TLS"},
		{"no key, good roots", map[string]string{"tls.crt": a.cert, "ca.crt": b.cert}, "", b.cert, "", "[tls.key]: it is missing or empty"},
		{"no certificate", map[string]string{"tls.key": a.key}, "", "", "", "[tls.crt]: it is missing or empty"},
		{"key of another", map[string]string{"tls.crt": a.cert, "tls.key": b.key}, "", "", "", "[tls.crt tls.key]: private key does not match"},
		{"chain in the wrong order", map[string]string{"tls.crt": b.cert + a.cert, "tls.key": a.key}, "", "", "", "[tls.crt tls.key]: the key belongs to certificate 2 in it, and not to the first one"},
		{"RSA of 2048 bits", map[string]string{"tls.crt": large.cert, "tls.key": large.key}, large.cert, "", "", ""},
		{"RSA of 1024 bits, good roots", map[string]string{"tls.crt": small.cert, "tls.key": small.key, "ca.crt": b.cert}, "", b.cert, "", "[tls.crt]: its RSA key has 1024 bits, and proxies take 2048 or more"},
		{"key encrypted", map[string]string{"tls.crt": a.cert, "tls.key": block("ENCRYPTED PRIVATE KEY", []byte("x"))}, "", "", "", "[tls.key]: the key is encrypted"},
		{"half-written certificate, good roots", map[string]string{"tls.crt": a.cert[:100], "tls.key": a.key, "ca.crt": b.cert}, "", b.cert, "", "[tls.crt]: 1 of its 1 PEM blocks"},
		{"good pair, broken roots", map[string]string{"tls.crt": a.cert, "tls.key": a.key, "ca.crt": "x"}, a.cert, "", "", "[ca.crt]: it has no PEM block"},
		{"broken revocation list", map[string]string{"ca.crt": a.cert, "ca.crl": block(crlBlock, []byte("x"))}, "", "", "", "[ca.crl]: a revocation list in it cannot be read"},
		{"certificate as revocation list", map[string]string{"ca.crt": a.cert, "ca.crl": a.cert}, "", "", "", "[ca.crl]: a block of another type is no revocation list"},
		{"revocation list alone", map[string]string{"ca.crl": a.crl}, "", "", "", "[ca.crt]: it is missing or empty"},
		{"expired", map[string]string{"tls.crt": old.cert, "tls.key": old.key}, old.cert, "", "", "[tls.crt]: the certificate has expired"},
		{"without names", map[string]string{"tls.crt": nameless.cert, "tls.key": nameless.key}, nameless.cert, "", "", "[tls.crt]: the certificate names no host"},
		{"without names, for clients", map[string]string{"tls.crt": client.cert, "tls.key": client.key}, client.cert, "", "", ""},
		{"roots with one bad block", map[string]string{"ca.crt": a.cert + block(certificateBlock, []byte("x")) + b.cert}, "", a.cert + b.cert, "", "[ca.crt]: 1 of its 3 PEM blocks are not used"},
		{"key among roots", map[string]string{"ca.crt": a.cert + a.key}, "", a.cert, "", "[ca.crt]: 1 of its 2 PEM blocks are not used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, flaws := Parse(bytesOf(c.entries))
			chain, _, pair := s.Pair()
			roots, crl, ok := s.Roots()
			if string(chain) != c.chain || pair != (c.chain != "") || string(roots) != c.roots || string(crl) != c.crl || ok != (c.roots != "") {
				t.Errorf("pair %t:\n%s\nroots %t:\n%s%s", pair, chain, ok, roots, crl)
			}
			if got := fmt.Sprint(texts(flaws)); c.flaw == "" && len(flaws) > 0 || !strings.Contains(got, c.flaw) || len(flaws) > 1 {
				t.Errorf("flaws %s, want %q", got, c.flaw)
			}
		})
	}
}

func bytesOf(entries map[string]string) map[string][]byte {
	out := map[string][]byte{}
	for k, v := range entries {
		out[k] = []byte(v)
	}
	return out
}

func texts(flaws []Flaw) (list []string) {
	for _, f := range flaws {
		list = append(list, fmt.Sprintf("%v: %s", f.Entries, f.Reason))
	}
	return list
}

// TestOr checks that a part that cannot be used is taken from the version before, and that a removed part is not.
func TestOr(t *testing.T) {
	a, b := newMaterial(t, "a", tomorrow()), newMaterial(t, "b", tomorrow())
	last, _ := Parse(bytesOf(map[string]string{"tls.crt": a.cert, "tls.key": a.key, "ca.crt": a.cert}))
	next, _ := Parse(bytesOf(map[string]string{"tls.crt": b.cert, "tls.key": a.key, "ca.crt": b.cert}))
	kept := next.Or(last)
	chain, key, _ := kept.Pair()
	roots, _, _ := kept.Roots()
	if string(chain) != a.cert || string(key) != a.key || string(roots) != b.cert {
		t.Errorf("the broken pair is not the last one, or the good roots are not the new ones:\n%s%s", chain, roots)
	}
	old := newMaterial(t, "old", time.Now().Add(-time.Hour))
	expired, _ := Parse(bytesOf(map[string]string{"tls.crt": old.cert, "tls.key": old.key, "ca.crt": b.cert}))
	kept = expired.Or(last)
	chain, key, _ = kept.Pair()
	roots, _, _ = kept.Roots()
	if string(chain) != a.cert || string(key) != a.key || string(roots) != b.cert || !kept.Expires().Equal(last.Expires()) {
		t.Errorf("an expired certificate replaces one that is valid, or keeps the new roots away:\n%s%s", chain, roots)
	}
	older, _ := Parse(bytesOf(map[string]string{"tls.crt": old.cert, "tls.key": old.key}))
	if chain, _, _ := expired.Or(older).Pair(); string(chain) != old.cert {
		t.Error("of two expired certificates the new one does not count")
	}
	for _, usage := range [][]x509.ExtKeyUsage{nil, {x509.ExtKeyUsageClientAuth}} {
		m := namelessMaterial(t, usage...)
		nameless, _ := Parse(bytesOf(map[string]string{"tls.crt": m.cert, "tls.key": m.key}))
		want := map[bool]string{true: a.cert, false: m.cert}[usage == nil] // clients need no names
		if chain, _, _ := nameless.Or(last).Pair(); string(chain) != want {
			t.Errorf("a certificate without names, with the usage %v, after one with names: it is\n%s", usage, chain)
		}
		if chain, _, _ := nameless.Or(older).Pair(); string(chain) != m.cert {
			t.Errorf("an expired certificate stays in the place of one without names, with the usage %v", usage)
		}
	}
	removed, _ := Parse(bytesOf(map[string]string{"tls.crt": a.cert, "tls.key": a.key}))
	if _, _, ok := removed.Or(last).Roots(); ok {
		t.Error("roots that were removed are kept")
	}
	empty, _ := Parse(nil)
	if _, _, ok := empty.Or(last).Pair(); !ok {
		t.Error("a folder that is being written loses what it had")
	}
	if got := next.Or(nil); got != next {
		t.Error("there was nothing to keep")
	}
}

// TestDocker checks that credentials of registries are taken in if they have the form of Docker's configuration, and are never quoted.
func TestDocker(t *testing.T) {
	const good = `{"auths":{"registry.test":{"auth":"aHVudGVyMg=="}}}`
	s, flaws := Parse(bytesOf(map[string]string{DockerConfig: good}))
	if config, ok := s.Docker(); !ok || string(config) != good || len(flaws) > 0 || !s.Has(DockerConfig) || s.Has(TLSCertificate) || s.Has(TLSRoots) {
		t.Errorf("%t %s %v", ok, config, flaws)
	}
	for _, bad := range []string{"hunter2", `{"registry.test":{"auth":"hunter2"}}`, `{"auths":"hunter2"}`} {
		broken, flaws := Parse(bytesOf(map[string]string{DockerConfig: bad}))
		if _, ok := broken.Docker(); ok || len(flaws) != 1 || !flaws[0].Unused || strings.Contains(fmt.Sprint(flaws), "hunter2") {
			t.Errorf("%s: %t %v", bad, ok, flaws)
		}
		if config, ok := broken.Or(s).Docker(); !ok || string(config) != good || broken.Equal(s) {
			t.Errorf("%s replaces the last good credentials by %q", bad, config)
		}
	}
	a := newMaterial(t, "a", tomorrow())
	removed, _ := Parse(bytesOf(map[string]string{"ca.crt": a.cert}))
	if _, ok := removed.Or(s).Docker(); ok {
		t.Error("credentials that were removed are kept")
	}
	empty, _ := Parse(nil)
	if _, ok := empty.Or(s).Docker(); !ok {
		t.Error("a folder that is being written loses what it had")
	}
}

// TestParseRoots checks that only the roots in a ConfigMap and their revocation lists are taken in.
func TestParseRoots(t *testing.T) {
	a, b := newMaterial(t, "a", tomorrow()), newMaterial(t, "b", tomorrow())
	for _, c := range []struct {
		name             string
		entries          map[string]string
		roots, crl, flaw string
	}{
		{"roots", map[string]string{"ca.crt": a.cert}, a.cert, "", ""},
		{"roots of two authorities, with a list", map[string]string{"ca.crt": a.cert + b.cert, "ca.crl": a.crl}, a.cert + b.cert, a.crl, ""},
		{"generic names", map[string]string{"cacert": a.cert, "crl": a.crl}, a.cert, a.crl, ""},
		{"a pair is not looked at", map[string]string{"ca.crt": a.cert, "tls.crt": b.cert, "tls.key": b.key, ".dockerconfigjson": "x"}, a.cert, "", ""},
		{"a pair alone", map[string]string{"tls.crt": b.cert, "tls.key": b.key}, "", "", "[ca.crt]: it is missing or empty; write the certificates"},
		{"nothing", nil, "", "", "[ca.crt]: it is missing or empty"},
		{"no certificate", map[string]string{"ca.crt": "x"}, "", "", "[ca.crt]: it has no PEM block"},
		{"a list alone", map[string]string{"ca.crl": a.crl}, "", "", "[ca.crt]: it is missing or empty, and a revocation list exists"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, flaws := ParseRoots(c.entries)
			roots, crl, _ := s.Roots()
			if _, _, pair := s.Pair(); pair || string(roots) != c.roots || string(crl) != c.crl {
				t.Errorf("pair %t, roots\n%s%s", pair, roots, crl)
			}
			if got := fmt.Sprint(texts(flaws)); c.flaw == "" && len(flaws) > 0 || !strings.Contains(got, c.flaw) || len(flaws) > 1 {
				t.Errorf("flaws %s, want %q", got, c.flaw)
			}
			if last, _ := ParseRoots(map[string]string{"ca.crt": b.cert}); c.flaw != "" {
				if kept, _, _ := s.Or(last).Roots(); string(kept) != b.cert {
					t.Errorf("the last good roots are lost: %q", kept)
				}
			}
		})
	}
}

// TestNothingShown checks that no way to print a Secret prints its content.
func TestNothingShown(t *testing.T) {
	a := newMaterial(t, "a", tomorrow())
	s, _ := Parse(bytesOf(map[string]string{"tls.crt": a.cert, "tls.key": a.key, "ca.crt": a.cert}))
	encoded, err := json.Marshal(map[string]any{"secret": s})
	if err != nil {
		t.Fatal(err)
	}
	shown := string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, struct{ Of *Secret }{s})
	}
	for _, part := range []string{"BEGIN", "45 45", "2d2d", "LS0t", "chain:"} {
		if strings.Contains(shown, part) {
			t.Errorf("it shows %q: %s", part, shown)
		}
	}
}

// FuzzParse checks that whatever is in a Secret is refused or good, and never quoted.
func FuzzParse(f *testing.F) {
	a := newMaterial(f, "a", tomorrow())
	f.Add([]byte(a.cert), []byte(a.key), []byte(a.cert), []byte(a.crl))
	f.Add([]byte(a.cert+a.key), []byte(a.key), []byte("-----BEGIN CERTIFICATE-----"), []byte(a.cert))
	f.Add([]byte("-----BEGIN ----------END -----"), []byte{0}, []byte(a.crl), []byte{})
	f.Fuzz(func(t *testing.T, cert, key, roots, crl []byte) {
		s, flaws := Parse(map[string][]byte{TLSCertificate: cert, TLSKey: key, TLSRoots: roots, TLSRevoked: crl})
		chain, private, pair := s.Pair()
		if pair && Match(chain, private) != nil {
			t.Error("a key that is not that of the certificate is accepted")
		}
		given, _, ok := s.Roots()
		if ok && !x509.NewCertPool().AppendCertsFromPEM(given) {
			t.Error("roots without a certificate are accepted")
		}
		if !pair && !ok && len(flaws) == 0 {
			t.Error("nothing can be used, and nothing is said")
		}
		for _, flaw := range flaws {
			if len(key) > 20 && bytes.Contains([]byte(flaw.Reason), key[:20]) || len(flaw.Reason) > 1000 {
				t.Errorf("the reason quotes an entry: %s", flaw.Reason)
			}
		}
	})
}
