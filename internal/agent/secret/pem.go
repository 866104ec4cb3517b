package secret

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// Types of PEM blocks.
const (
	certificateBlock = "CERTIFICATE"
	crlBlock         = "X509 CRL"
	keySuffix        = "PRIVATE KEY"
)

// blocks parses all PEM blocks. An incomplete block, as in a file that is being written, is an error.
func blocks(data []byte) ([]*pem.Block, error) {
	var list []*pem.Block
	for rest := data; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		list = append(list, b)
	}
	begins := 0
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			begins++
		}
	}
	switch {
	case begins > len(list):
		return nil, fmt.Errorf("%d of its %d PEM blocks cannot be read", begins-len(list), begins)
	case len(list) == 0:
		return nil, errors.New("it has no PEM block")
	}
	return list, nil
}

// makeRoots builds a secret from a file with CA certificates. Certificates that cannot be parsed are left out, because a
// system's bundle of hundreds may contain an unusual one; what they signed is not trusted. All revocation lists in the file,
// which Envoy uses too, must be valid. Without one of them Envoy would trust revoked certificates.
func makeRoots(name, file string, data []byte) (Answer, error) {
	list, err := blocks(data)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w; write PEM certificates into it", file, err)
	}
	var out bytes.Buffer
	var odd error
	kept, left := 0, 0
	for _, b := range list {
		switch b.Type {
		case certificateBlock:
			if _, err := x509.ParseCertificate(b.Bytes); err != nil {
				left, odd = left+1, err
				continue
			}
			kept++
		case crlBlock:
			if _, err := x509.ParseRevocationList(b.Bytes); err != nil {
				return Answer{}, fmt.Errorf("%s: a revocation list in it cannot be read: %w; replace it", file, err)
			}
		default:
			left, odd = left+1, fmt.Errorf("a %s is no root", b.Type)
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: b.Type, Bytes: b.Bytes}); err != nil {
			return Answer{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	if kept == 0 {
		return Answer{}, fmt.Errorf("%s: it has no certificate that can be read%s; write PEM certificates into it", file, reasonSuffix(odd))
	}
	a, err := newAnswer(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(out.Bytes())},
	}})
	if left > 0 {
		a.Remark = fmt.Sprintf("%s: %d of its %d PEM blocks are not used%s", file, left, len(list), reasonSuffix(odd))
	}
	return a, err
}

func reasonSuffix(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// makePair builds a secret from a certificate with its chain and the matching private key.
func makePair(name string, files []string, chain, key []byte) (Answer, error) {
	list, err := blocks(chain)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w; write the certificate and its chain into it, as PEM", files[0], err)
	}
	var certs bytes.Buffer
	var leaf *x509.Certificate
	for _, b := range list {
		if b.Type != certificateBlock { // some tools store the key in the same file
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return Answer{}, fmt.Errorf("%s: a certificate in it cannot be read: %w; replace it", files[0], err)
		}
		if leaf == nil {
			leaf = c
		}
		if err := pem.Encode(&certs, &pem.Block{Type: b.Type, Bytes: b.Bytes}); err != nil {
			return Answer{}, fmt.Errorf("%s: %w", files[0], err)
		}
	}
	if leaf == nil {
		return Answer{}, fmt.Errorf("%s: it has no certificate; write the certificate and its chain into it, as PEM", files[0])
	}
	keyPEM, err := readKey(key)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", files[1], err)
	}
	if _, err := tls.X509KeyPair(certs.Bytes(), keyPEM); err != nil {
		return Answer{}, fmt.Errorf("%s and %s: %s; write a certificate and the key it was made for",
			files[0], files[1], strings.TrimPrefix(err.Error(), "tls: "))
	}
	a, err := newAnswer(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(certs.Bytes()), PrivateKey: inline(keyPEM)},
	}})
	a.Expires = leaf.NotAfter.UTC()
	if now := time.Now(); now.After(leaf.NotAfter) {
		a.Remark = fmt.Sprintf("%s: the certificate has expired on %s, and servers will refuse it; renew it", files[0], a.Expires.Format(time.RFC3339))
	}
	return a, err
}

// readKey returns the private key in a file, as PEM without other content. Its errors do not quote the file.
func readKey(data []byte) ([]byte, error) {
	list, err := blocks(data)
	if err != nil {
		return nil, fmt.Errorf("%w; write a PEM private key into it", err)
	}
	for _, b := range list {
		switch {
		case !strings.HasSuffix(b.Type, keySuffix):
		case strings.HasPrefix(b.Type, "ENCRYPTED ") || b.Headers["DEK-Info"] != "":
			return nil, errors.New("the key is encrypted, and the agent has no passphrase; write it in plain PEM, readable by the proxy's user only")
		default:
			return pem.EncodeToMemory(&pem.Block{Type: b.Type, Bytes: b.Bytes}), nil
		}
	}
	return nil, errors.New("it has no private key; write a PEM private key into it")
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
