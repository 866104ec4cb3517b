package certs

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// TestIssue: a certificate that an authority has signed is accepted only by peers that trust the authority, under every name it carries. An authority
// that went to another process and back signs as before.
func TestIssue(t *testing.T) {
	a, err := NewAuthority("ours")
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.Pair().Authority()
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{Name: "n", Hosts: []string{"web.example"}, URIs: []string{"spiffe://cluster.local/ns/a/sa/b"}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	pair, err := again.Issue(id)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web.example", "10.0.0.1"} {
		for _, pool := range []*x509.CertPool{a.Pool(), Pool(other.Pair().Cert + a.Pair().Cert)} {
			if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: other.Pool()}); err == nil {
		t.Error("another authority's verifier believes it")
	}
	if Name(c.Leaf) != id.URIs[0] {
		t.Errorf("it is called %s", Name(c.Leaf))
	}
	if _, err := pair.Authority(); err == nil {
		t.Error("a leaf is taken for an authority")
	}
}

// TestWrite: the written files can be read by others; a key alone has no certificate beside it.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	a, err := NewAuthority("ours")
	if err != nil {
		t.Fatal(err)
	}
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]Pair{"ca": a.Pair(), "alone": {Key: key}} {
		if err := p.Write(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "alone.crt")); err == nil {
		t.Error("there is a certificate for a key alone")
	}
}

// TestSelfSigned: the certificate is its own root.
func TestSelfSigned(t *testing.T) {
	c, err := SelfSigned(Identity{Name: "web", Hosts: []string{"web", "localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.Leaf)
	if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost"}); err != nil {
		t.Error(err)
	}
}
