// Package ca is the certificate authority of the mesh: it signs the certificates of workloads and of the control plane itself.
//
// An Authority is the signing state at a moment: a certificate with its key and chain, and the roots that the mesh trusts. It
// never changes. A Keeper has the present one. It makes a self-signed one and changes its root long before it expires, or reads
// one that is plugged in, and follows its files. Service answers requests for certificates by gRPC.
//
// Invariants:
//   - A certificate has the identity that the caller has shown, and nothing that the request says of itself but its public key.
//   - No certificate outlives the certificate that signed it.
//   - A new root is trusted everywhere before it signs, and an old one until all its certificates have expired.
//   - An authority that cannot be read replaces none that can. The last good one continues to sign.
//   - Keys appear in no log, error or page.
//
// Goroutines: one, which runs Keeper.Run. All else is pure or may be called by many goroutines at the same time.
package ca

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Material is the certificates and the key of an authority, as PEM.
type Material struct {
	// Cert and Key are the signing certificate and its key.
	Cert, Key []byte
	// Chain are the certificates between Cert and its root. It may contain Cert, and the root.
	Chain []byte
	// Roots are the certificates that the mesh trusts. If there are none, Cert is one.
	Roots []byte
	// CRL are lists of revoked certificates.
	CRL []byte
}

// Authority signs certificates. It never changes.
type Authority struct {
	signer crypto.Signer
	cert   *x509.Certificate
	// chain begins with cert, unless that is a root, and ends before the root.
	chain []*x509.Certificate
	// roots are all that are trusted. The last one vouches for cert.
	roots []*x509.Certificate
	crls  []*x509.RevocationList
	pool  *x509.CertPool
	// revoked has the certificates that the lists name.
	revoked map[serial]struct{}
}

// PEM types.
const (
	certBlock    = "CERTIFICATE"
	requestBlock = "CERTIFICATE REQUEST"
	newRequest   = "NEW CERTIFICATE REQUEST"
	crlBlock     = "X509 CRL"
	keyBlock     = "PRIVATE KEY"
)

// NewAuthority checks the material and returns the authority. Its errors quote no key.
func NewAuthority(m Material, now time.Time) (*Authority, error) {
	pair, err := tls.X509KeyPair(m.Cert, m.Key)
	if err != nil {
		return nil, fmt.Errorf("its certificate and key: %s", strings.TrimPrefix(err.Error(), "tls: "))
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("its key cannot sign")
	}
	a := &Authority{signer: signer}
	certs, err := parseCertificates(m.Cert)
	if err != nil {
		return nil, fmt.Errorf("its certificate: %w", err)
	}
	a.cert = certs[0]
	between, err := parseCertificates(m.Chain)
	if err != nil && len(bytes.TrimSpace(m.Chain)) > 0 {
		return nil, fmt.Errorf("its chain: %w", err)
	}
	roots := []*x509.Certificate{a.cert}
	if len(bytes.TrimSpace(m.Roots)) > 0 {
		if roots, err = parseCertificates(m.Roots); err != nil {
			return nil, fmt.Errorf("its roots: %w", err)
		}
	}
	if a.crls, err = parseCRLs(m.CRL); err != nil {
		return nil, fmt.Errorf("its revocation lists: %w", err)
	}
	a.revoked = serials(a.crls)
	if err := a.connect(append(certs[1:], between...), unique(roots), now); err != nil {
		return nil, err
	}
	a.pool = x509.NewCertPool()
	for _, r := range a.roots {
		a.pool.AddCert(r)
	}
	return a, nil
}

// connect finds the way from the signing certificate to a root.
func (a *Authority) connect(between, roots []*x509.Certificate, now time.Time) error {
	switch {
	case !a.cert.IsCA || !a.cert.BasicConstraintsValid:
		return errors.New("its certificate does not belong to a certificate authority (basic constraints CA:TRUE)")
	case a.cert.KeyUsage != 0 && a.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("its certificate may not sign certificates (key usage)")
	case !now.Before(a.cert.NotAfter):
		return fmt.Errorf("its certificate has expired at %s; replace it", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, r := range roots {
		options.Roots.AddCert(r)
	}
	for _, c := range between {
		options.Intermediates.AddCert(c)
	}
	ways, err := a.cert.Verify(options)
	if err != nil {
		return fmt.Errorf("no root vouches for its certificate: %w; put the root into root-cert.pem, and the certificates between them into cert-chain.pem", err)
	}
	way := slices.MinFunc(ways, func(a, b []*x509.Certificate) int { return len(a) - len(b) })
	root := way[len(way)-1]
	a.chain = way[:len(way)-1]
	a.roots = append(slices.DeleteFunc(roots, root.Equal), root)
	return nil
}

// Roots returns the trusted roots as PEM.
func (a *Authority) Roots() []byte { return encode(a.roots...) }

// Pool returns the trusted roots for verification. It must not be changed.
func (a *Authority) Pool() *x509.CertPool { return a.pool }

// Expires returns when the signing certificate and the root that vouches for it expire.
func (a *Authority) Expires() (signing, root time.Time) {
	return a.cert.NotAfter, a.roots[len(a.roots)-1].NotAfter
}

// CRL returns the revocation lists as PEM.
func (a *Authority) CRL() []byte {
	var out bytes.Buffer
	for _, l := range a.crls {
		_ = pem.Encode(&out, &pem.Block{Type: crlBlock, Bytes: l.Raw}) // a buffer takes everything
	}
	return out.Bytes()
}

// Revoked returns an error if a list names a certificate of a verified chain.
func (a *Authority) Revoked(chain []*x509.Certificate) error {
	for _, c := range chain {
		if _, is := a.revoked[serial{string(c.RawIssuer), string(c.SerialNumber.Bytes())}]; is {
			return fmt.Errorf("the certificate %s was revoked", c.SerialNumber)
		}
	}
	return nil
}

// serial names a certificate: its issuer, and its number there.
type serial struct{ issuer, number string }

func serials(lists []*x509.RevocationList) map[serial]struct{} {
	all := map[serial]struct{}{}
	for _, l := range lists {
		for _, entry := range l.RevokedCertificateEntries {
			all[serial{string(l.RawIssuer), string(entry.SerialNumber.Bytes())}] = struct{}{}
		}
	}
	return all
}

// String names the authority without its key.
func (a *Authority) String() string {
	return fmt.Sprintf("certificate authority %q, valid until %s, %d roots", a.cert.Subject, a.cert.NotAfter.UTC().Format(time.RFC3339), len(a.roots))
}

// GoString is String, so that %#v does not show the key either.
func (a *Authority) GoString() string { return a.String() }

// equal reports whether two authorities sign with the same certificate, and trust and revoke the same.
func (a *Authority) equal(b *Authority) bool {
	same := func(x, y *x509.Certificate) bool { return x.Equal(y) }
	return a != nil && b != nil && a.cert.Equal(b.cert) && slices.EqualFunc(a.chain, b.chain, same) && slices.EqualFunc(a.roots, b.roots, same) && bytes.Equal(a.CRL(), b.CRL())
}

// follows returns an error if proxies that trust the roots of was would refuse certificates of a.
func (a *Authority) follows(was *Authority, now time.Time) error {
	if was == nil {
		return nil
	}
	options := x509.VerifyOptions{Roots: was.pool, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, c := range a.chain {
		options.Intermediates.AddCert(c)
	}
	if _, err := a.cert.Verify(options); err != nil {
		return errors.New("proxies do not trust its root yet: first put the new root into root-cert.pem beside the old one, and replace certificate and key when all certificates of workloads have been renewed")
	}
	return nil
}

func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			if err := whole(rest); err != nil {
				return nil, err
			}
			break
		}
		if b.Type != certBlock {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, errors.New("there is no PEM certificate in it")
	}
	return list, nil
}

// whole returns an error if a block of PEM begins in text and does not end, as in a file that is being written or was cut off.
func whole(text []byte) error {
	if bytes.Contains(text, []byte("-----BEGIN ")) {
		return errors.New("the end of its last PEM block is missing")
	}
	return nil
}

func parseCRLs(text []byte) (list []*x509.RevocationList, err error) {
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return list, whole(rest)
		}
		if b.Type != crlBlock {
			return nil, fmt.Errorf("there is a %s in it", b.Type)
		}
		l, err := x509.ParseRevocationList(b.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
}

func unique(certs []*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, c := range certs {
		if !slices.ContainsFunc(out, c.Equal) {
			out = append(out, c)
		}
	}
	return out
}

func encode(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: certBlock, Bytes: c.Raw}) // a buffer takes everything
	}
	return out.Bytes()
}
