// Package certs makes certificate authorities and certificates for tests.
//
// Every key is a new ECDSA key on P-256; every certificate is valid from an hour ago (clocks of verifiers may differ) for a year. Values do not
// change once made and may be shared between goroutines; the package starts none.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Pair is a certificate and its key, as PEM.
type Pair struct{ Cert, Key string }

// Identity is what a certificate says: who, and for servers where.
type Identity struct {
	Name   string   // common name
	Groups []string // organizations
	Hosts  []string // DNS names
	URIs   []string // for instance a SPIFFE id
	IPs    []netip.Addr
}

// Authority signs certificates.
type Authority struct {
	pair Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that signs itself.
func NewAuthority(name string) (*Authority, error) {
	c, err := template(Identity{Name: name})
	if err != nil {
		return nil, err
	}
	c.IsCA, c.ExtKeyUsage = true, nil
	c.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	pair, err := sign(c, nil)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	return pair.Authority()
}

// Issue signs a certificate that is good for both ends of a connection. Each change makes it another one before it is signed.
func (a *Authority) Issue(id Identity, changes ...func(*x509.Certificate)) (Pair, error) {
	c, err := template(id)
	if err != nil {
		return Pair{}, err
	}
	for _, change := range changes {
		change(c)
	}
	pair, err := sign(c, a)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s: %w", id.Name, err)
	}
	return pair, nil
}

// Revoke returns a list of revoked certificates as PEM, by their serial numbers.
func (a *Authority) Revoke(serials ...*big.Int) (string, error) {
	list := &x509.RevocationList{Number: big.NewInt(time.Now().UnixNano()), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: n, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		return "", fmt.Errorf("signing a list of revoked certificates: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})), nil
}

// Pair is the authority's own certificate and key, for instance for another process.
func (a *Authority) Pair() Pair { return a.pair }

// Pool is what a verifier of this authority's certificates needs.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// SelfSigned makes a self-signed server certificate.
func SelfSigned(id Identity) (tls.Certificate, error) {
	c, err := template(id)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := sign(c, nil)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("signing the certificate of %s: %w", id.Name, err)
	}
	return pair.TLS()
}

// NewKey makes a private key alone, as PEM.
func NewKey() (string, error) {
	_, text, err := newKey()
	return text, err
}

// TLS is the pair as Go's TLS wants it.
func (p Pair) TLS() (tls.Certificate, error) {
	c, err := tls.X509KeyPair([]byte(p.Cert), []byte(p.Key))
	if err != nil {
		return c, fmt.Errorf("reading a certificate and its key: %w", err)
	}
	return c, nil
}

// Authority makes the authority whose certificate and key the pair is.
func (p Pair) Authority() (*Authority, error) {
	c, err := p.TLS()
	if err != nil {
		return nil, err
	}
	key, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !c.Leaf.IsCA {
		return nil, errors.New("not a certificate of an authority with an ECDSA key")
	}
	return &Authority{pair: p, cert: c.Leaf, key: key}, nil
}

// Write puts the pair into dir/name.crt and dir/name.key. A part that is empty is not written.
func (p Pair) Write(dir, name string) error {
	if p.Cert != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".crt"), []byte(p.Cert), 0o644); err != nil {
			return fmt.Errorf("writing a certificate: %w", err)
		}
	}
	if p.Key != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".key"), []byte(p.Key), 0o600); err != nil {
			return fmt.Errorf("writing a key: %w", err)
		}
	}
	return nil
}

// Pool holds the certificates of a PEM text.
func Pool(text string) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM([]byte(text))
	return p
}

// Name is how a certificate is called in reports: its URI, else its first DNS name, else its subject.
func Name(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.String()
}

// template is the certificate of id without a key.
func template(id Identity) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id.Name, Organization: id.Groups}, DNSNames: id.Hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, text := range id.URIs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("the identity of a certificate: %w", err)
		}
		c.URIs = append(c.URIs, u)
	}
	for _, ip := range id.IPs {
		c.IPAddresses = append(c.IPAddresses, net.IP(ip.AsSlice()))
	}
	return c, nil
}

// sign makes a key and signs c for it: by an authority, or by the key itself if that is nil.
func sign(c *x509.Certificate, by *Authority) (Pair, error) {
	key, text, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	issuer, signer := c, key
	if by != nil {
		issuer, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	return Pair{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), text}, nil
}

// newKey writes the key in the form of SEC 1: the API server reads a file of no other form as a public key too.
func newKey() (*ecdsa.PrivateKey, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, "", fmt.Errorf("encoding a key: %w", err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), nil
}
