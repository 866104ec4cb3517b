package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/security/identity"
)

// Limits of requests.
const (
	maxRequest = 64 << 10
	minRSA     = 2048
	maxRSA     = 8192
)

// skew is how far the clock of a proxy may be behind the authority's clock.
const skew = 2 * time.Minute

// errRequest means that a request for a certificate cannot be granted to any caller.
var errRequest = errors.New("the request for a certificate (CSR) cannot be granted")

// PublicKey returns the public key of a request for a certificate, in PEM. Nothing else of the request counts.
func PublicKey(csr string) (crypto.PublicKey, error) {
	q, err := parseRequest(csr)
	if err != nil {
		return nil, err
	}
	return q.PublicKey, nil
}

func parseRequest(csr string) (*x509.CertificateRequest, error) {
	if len(csr) > maxRequest {
		return nil, fmt.Errorf("%w: it has %d bytes, and the most is %d", errRequest, len(csr), maxRequest)
	}
	b, _ := pem.Decode([]byte(csr))
	if b == nil || b.Type != requestBlock && b.Type != newRequest {
		return nil, fmt.Errorf("%w: it is no PEM of the type %q", errRequest, requestBlock)
	}
	q, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	// The size of the key is checked first, because to check a signature of a huge key takes long.
	if err := checkKey(q.PublicKey); err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	if err := q.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: the key that it has did not sign it: %w", errRequest, err)
	}
	return q, nil
}

// checkKey refuses keys that are weak, or that Envoy does not use.
func checkKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA || bits > maxRSA {
			return fmt.Errorf("its RSA key has %d bits; use %d to %d", bits, minRSA, maxRSA)
		}
		return nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return nil
		}
		return fmt.Errorf("its ECDSA key is of the curve %s; use P-256, P-384 or P-521", k.Curve.Params().Name)
	}
	return errors.New("its key is neither RSA nor ECDSA")
}

// Limits are the bounds of how long certificates are valid.
type Limits struct{ Default, Max time.Duration }

// Bound returns the validity of a certificate for the seconds that a caller requests; 0 or less requests the default.
func (l Limits) Bound(seconds int64) time.Duration {
	switch {
	case seconds <= 0:
		return min(l.Default, l.Max)
	case seconds > int64(l.Max/time.Second):
		return l.Max
	}
	return time.Duration(seconds) * time.Second
}

// Subject is the workload that a certificate is for.
type Subject struct {
	identity.Identity
	// About has the names of the workload in metrics; see mesh.WorkloadIdentity. Servers believe them, so they must not be the caller's words. It is
	// empty if they are not known.
	About string
}

// Issue signs a certificate for a workload. It returns the certificate, its chain, and the trusted roots, each as PEM. The last one is
// the root that vouches for the certificate. more are further roots that the mesh trusts.
func (a *Authority) Issue(key crypto.PublicKey, of Subject, valid time.Duration, now time.Time, more ...*x509.Certificate) ([]string, error) {
	if err := of.Check(); err != nil {
		return nil, err
	}
	uri, err := url.Parse(of.Identity.String())
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{URIs: []*url.URL{uri}}
	if of.About != "" {
		t.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: identity.AboutType(), Value: of.About}}
	}
	leaf, err := a.sign(t, key, valid, now)
	if err != nil {
		return nil, err
	}
	return a.answer(leaf, more), nil
}

// answer lists a certificate with everything that belongs to it.
func (a *Authority) answer(leaf []byte, more []*x509.Certificate) []string {
	list := []string{string(pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: leaf}))}
	for _, c := range a.chain {
		list = append(list, string(encode(c)))
	}
	for _, c := range unique(append(slices.Clone(more), a.roots...)) {
		if !c.Equal(a.roots[len(a.roots)-1]) {
			list = append(list, string(encode(c)))
		}
	}
	return append(list, string(encode(a.roots[len(a.roots)-1])))
}

// Serve returns a certificate with a new key for a server of these names.
func (a *Authority) Serve(names []string, valid time.Duration, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := a.sign(t, &key.PublicKey, valid, now)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	for _, between := range a.chain {
		c.Certificate = append(c.Certificate, between.Raw)
	}
	return c, nil
}

// sign completes and signs a certificate for clients and servers.
func (a *Authority) sign(t *x509.Certificate, key crypto.PublicKey, valid time.Duration, now time.Time) ([]byte, error) {
	if !now.Before(a.cert.NotAfter) {
		return nil, fmt.Errorf("the certificate of the authority has expired at %s", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	t.SerialNumber = serial
	t.NotBefore, t.NotAfter = now.Add(-skew), now.Add(valid)
	for _, above := range append(slices.Clone(a.chain), a.cert, a.roots[len(a.roots)-1]) {
		if t.NotAfter.After(above.NotAfter) {
			t.NotAfter = above.NotAfter
		}
		if t.NotBefore.Before(above.NotBefore) {
			t.NotBefore = above.NotBefore
		}
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	if _, is := key.(*rsa.PublicKey); is {
		t.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key, a.signer)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return der, nil
}

func serialNumber() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return n.Add(n, big.NewInt(1)), nil
}

// newRoot makes a self-signed root with its key, both as PEM.
func newRoot(organization string, rsaBits int, valid time.Duration, now time.Time) (cert, key []byte, err error) {
	var signer crypto.Signer
	if rsaBits > 0 {
		signer, err = rsa.GenerateKey(rand.Reader, rsaBits)
	} else {
		signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{organization}, SerialNumber: serial.Text(16)[:8]},
		NotBefore: now.Add(-skew), NotAfter: now.Add(valid), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, signer.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: raw}), nil
}
