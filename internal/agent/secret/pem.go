package secret

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/pilotmesh/pilot/internal/security/credential"
)

// certificateBlock is the type of PEM blocks of certificates.
const certificateBlock = "CERTIFICATE"

// makeRoots builds a secret from a file with CA certificates, and from lists of revoked certificates if there are any.
func makeRoots(name, file string, data, crl []byte) (Answer, error) {
	roots, remark, err := credential.Roots(data)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", file, err)
	}
	context := &tlsv3.CertificateValidationContext{TrustedCa: inline(roots)}
	if len(crl) > 0 {
		// CA certificates are looked up in no list, because their issuer may publish none.
		context.Crl, context.OnlyVerifyLeafCertCrl = inline(crl), true
	}
	a, err := newAnswer(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: context}})
	if remark != "" {
		a.Remark = file + ": " + remark
	}
	return a, err
}

// makePair builds a secret from a certificate with its chain and the matching private key.
func makePair(name string, files []string, cert, private []byte) (Answer, error) {
	chain, leaf, err := credential.Chain(cert)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", files[0], err)
	}
	key, err := credential.Key(private)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", files[1], err)
	}
	if err := credential.Match(chain, key); err != nil {
		return Answer{}, fmt.Errorf("%s and %s: %w", files[0], files[1], err)
	}
	a, err := newAnswer(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(chain), PrivateKey: inline(key)},
	}})
	a.Expires = leaf.NotAfter.UTC()
	if remark := credential.Expired(leaf); remark != "" {
		a.Remark = files[0] + ": " + remark
	}
	return a, err
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
