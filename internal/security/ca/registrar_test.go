package ca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/security/identity"
)

// elsewhere signs every request as it is. change may spoil its certificates.
type elsewhere struct {
	*Authority
	change func(*x509.Certificate)
	signer string
	asked  time.Duration
}

func (e *elsewhere) Obtain(_ context.Context, signer, csr string, valid time.Duration) ([]byte, error) {
	e.signer, e.asked = signer, valid
	q, err := parseRequest(csr)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: q.Subject, URIs: q.URIs, DNSNames: q.DNSNames, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(valid),
		PublicKey: q.PublicKey,
	}
	e.change(leaf)
	der, err := x509.CreateCertificate(rand.Reader, leaf, e.cert, leaf.PublicKey, e.Authority.signer)
	return append(pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der}), encode(e.cert)...), err
}

// registrar returns a registration authority whose signer changes the certificates that it signs.
func registrar(root *Authority, change func(*x509.Certificate)) (*Registrar, *elsewhere) {
	if change == nil {
		change = func(*x509.Certificate) {}
	}
	e := &elsewhere{Authority: root, change: change}
	data := &meshconfig.MeshConfig_CertificateData{
		CertificateData: &meshconfig.MeshConfig_CertificateData_Pem{Pem: string(encode(root.cert))},
		CertSigners:     []string{"example.com/mesh", "example.com/other"},
	}
	trusted, _ := NewTrusted([]*meshconfig.MeshConfig_CertificateData{data}, nil)
	return &Registrar{Requests: e, Signer: "example.com/mesh", Domain: "example.com", Roots: trusted.Of, Now: time.Now}, e
}

func own(t *testing.T, key crypto.Signer, id identity.Identity) string {
	t.Helper()
	uri, err := url.Parse(id.String())
	if err != nil {
		t.Fatal(err)
	}
	return request(t, key, &x509.CertificateRequest{URIs: []*url.URL{uri}})
}

// TestRegistrar: a certificate of an external signer is passed on with the roots that the mesh configuration has for it.
func TestRegistrar(t *testing.T) {
	root := selfSigned(t, time.Hour, 0, time.Now())
	key := ecKey(t)
	for wish, want := range map[string]string{"": "example.com/mesh", "other": "example.com/other"} {
		r, e := registrar(root, nil)
		chain, err := r.Sign(t.Context(), own(t, key, reviews), key.Public(), Subject{Identity: reviews}, time.Hour, wish)
		if err != nil || e.signer != want || e.asked != time.Hour {
			t.Fatalf("%v by %q for %v", err, e.signer, e.asked)
		}
		if len(chain) != 2 || leafOf(t, chain).URIs[0].String() != reviews.String() || chain[1] != string(encode(root.cert)) {
			t.Errorf("the answer is %q", chain)
		}
	}
}

// TestRegistrarRefuses lists requests that ask for more than the caller may have: the signer would sign them as they are.
func TestRegistrarRefuses(t *testing.T) {
	root := selfSigned(t, time.Hour, 0, time.Now())
	key := ecKey(t)
	uri, err := url.Parse(reviews.String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := url.Parse("spiffe://cluster.local/ns/shop/sa/admin")
	if err != nil {
		t.Fatal(err)
	}
	ca := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}
	for want, q := range map[string]*x509.CertificateRequest{
		"must ask for the name":   {},
		"asks for other names":    {URIs: []*url.URL{other}},
		"for other names than":    {URIs: []*url.URL{uri, other}},
		"other names than the c":  {URIs: []*url.URL{uri}, DNSNames: []string{"istiod.istio-system.svc"}},
		"it has a subject":        {URIs: []*url.URL{uri}, Subject: pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}},
		"the extension 2.5.29.19": {URIs: []*url.URL{uri}, ExtraExtensions: []pkix.Extension{ca}},
	} {
		r, e := registrar(root, nil)
		_, err := r.Sign(t.Context(), request(t, key, q), key.Public(), Subject{Identity: reviews}, time.Hour, "")
		if err == nil || !strings.Contains(err.Error(), want) || e.signer != "" {
			t.Errorf("%s: %v; %q was asked", want, err, e.signer)
		}
	}
}

// TestRegistrarDoubts lists answers of a signer that are not passed on, and requests that callers may not make.
func TestRegistrarDoubts(t *testing.T) {
	root, unknown := selfSigned(t, time.Hour, 0, time.Now()), selfSigned(t, time.Hour, 0, time.Now())
	key := ecKey(t)
	sign := func(r *Registrar, wish string) error {
		_, err := r.Sign(t.Context(), own(t, key, reviews), key.Public(), Subject{Identity: reviews}, time.Hour, wish)
		return err
	}
	stranger := ecKey(t)
	for want, change := range map[string]func(*x509.Certificate){
		"for another key":       func(c *x509.Certificate) { c.PublicKey = stranger.Public() },
		"is not one of":         func(c *x509.Certificate) { c.DNSNames = []string{"x"} },
		"may sign others":       func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true },
		"expired or is not yet": func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) },
	} {
		r, _ := registrar(root, change)
		if err := sign(r, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	r, e := registrar(root, nil)
	e.Authority = unknown
	if err := sign(r, ""); err == nil || !strings.Contains(err.Error(), "no root of the mesh vouches") {
		t.Errorf("a root that the mesh does not know: %v", err)
	}
	for wish, want := range map[string]string{"none": "the mesh knows no root of the signer example.com/none", "example.com/mesh": "without its domain"} {
		if err := sign(r, wish); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wish, err)
		}
	}
	r.Signer, r.Domain = "", ""
	for wish, want := range map[string]string{"": "there is none for all", "mesh": "callers may wish none"} {
		if err := sign(r, wish); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", wish, err)
		}
	}
}
