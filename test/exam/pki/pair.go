package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// Load is the pair as Go's TLS stack wants it.
func (k Pair) Load() (tls.Certificate, error) {
	return tls.X509KeyPair([]byte(k.Cert), []byte(k.Key))
}

// Authority turns a CA's key pair back into an issuer.
func (k Pair) Authority() (*Authority, error) {
	c, err := k.Load()
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return nil, err
	}
	key, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("CA key is not ECDSA")
	}
	return &Authority{cert: cert, key: key, PEM: k.Cert}, nil
}

// Pair is the authority's own certificate and key, to hand it to another process.
func (a *Authority) Pair() Pair {
	kd, _ := x509.MarshalPKCS8PrivateKey(a.key)
	return Pair{a.PEM, pemOf("PRIVATE KEY", kd)}
}

// Pool holds the certificates of a PEM text.
func Pool(pems string) *x509.CertPool {
	pool := x509.NewCertPool()
	for rest := []byte(pems); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return pool
		}
		if c, err := x509.ParseCertificate(b.Bytes); err == nil {
			pool.AddCert(c)
		}
	}
}

// Name is how observations name a certificate: its SPIFFE id, DNS name or subject.
func Name(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.String()
}
