package credential

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
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

// Roots returns the CA certificates and revocation lists in a text, as PEM without other content. Certificates that cannot be parsed are
// left out, because a system's bundle of hundreds may contain an unusual one; certificates signed by these are not trusted, and the
// remark says so. All revocation lists, which Envoy uses too, must be valid. Without one of them Envoy would trust revoked certificates.
func Roots(data []byte) (roots []byte, remark string, err error) {
	list, err := blocks(data)
	if err != nil {
		return nil, "", fmt.Errorf("%w; write PEM certificates into it", err)
	}
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
				return nil, "", fmt.Errorf("a revocation list in it cannot be read: %w; replace it", err)
			}
		default:
			left, odd = left+1, fmt.Errorf("a %s is no root", kindOf(b))
			continue
		}
		roots = append(roots, encode(b)...)
	}
	if kept == 0 {
		return nil, "", fmt.Errorf("it has no certificate that can be read%s; write PEM certificates into it", suffix(odd))
	}
	if left > 0 {
		remark = fmt.Sprintf("%d of its %d PEM blocks are not used%s", left, len(list), suffix(odd))
	}
	return roots, remark, nil
}

// kindOf returns the type of a block as it may be shown. Only a known type is shown whole, because the text may be anything.
func kindOf(b *pem.Block) string {
	if strings.HasSuffix(b.Type, keySuffix) && len(b.Type) < 40 {
		return b.Type
	}
	return "block of another type"
}

func suffix(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

func encode(b *pem.Block) []byte { return pem.EncodeToMemory(&pem.Block{Type: b.Type, Bytes: b.Bytes}) }

// RevocationLists returns the revocation lists in a text, as PEM. Nothing else may be in it.
func RevocationLists(data []byte) (lists []byte, err error) {
	all, err := blocks(data)
	if err != nil {
		return nil, fmt.Errorf("%w; write PEM revocation lists into it", err)
	}
	for _, b := range all {
		if b.Type != crlBlock {
			return nil, fmt.Errorf("a %s is no revocation list; write PEM revocation lists into it", kindOf(b))
		}
		if _, err := x509.ParseRevocationList(b.Bytes); err != nil {
			return nil, fmt.Errorf("a revocation list in it cannot be read: %w; replace it", err)
		}
		lists = append(lists, encode(b)...)
	}
	return lists, nil
}

// Chain returns the certificates in a text, as PEM without other content. Some tools store the key in the same file.
func Chain(data []byte) (chain []byte, leaf *x509.Certificate, err error) {
	list, err := blocks(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; write the certificate and its chain into it, as PEM", err)
	}
	for _, b := range list {
		if b.Type != certificateBlock {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("a certificate in it cannot be read: %w; replace it", err)
		}
		if leaf == nil {
			leaf = c
		}
		chain = append(chain, encode(b)...)
	}
	if leaf == nil {
		return nil, nil, errors.New("it has no certificate; write the certificate and its chain into it, as PEM")
	}
	return chain, leaf, nil
}

// Key returns the private key in a text, as PEM without other content. Its errors do not quote the text.
func Key(data []byte) ([]byte, error) {
	list, err := blocks(data)
	if err != nil {
		return nil, fmt.Errorf("%w; write a PEM private key into it", err)
	}
	for _, b := range list {
		switch {
		case !strings.HasSuffix(b.Type, keySuffix):
		case strings.HasPrefix(b.Type, "ENCRYPTED ") || b.Headers["DEK-Info"] != "":
			return nil, errors.New("the key is encrypted, and its passphrase is not known here; write it in plain PEM, readable only by who needs it")
		default:
			return encode(b), nil
		}
	}
	return nil, errors.New("it has no private key; write a PEM private key into it")
}

// Match returns an error if a key does not belong to the first certificate of a chain.
func Match(chain, key []byte) error {
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		if n := holder(chain, key); n > 0 {
			return fmt.Errorf("the key belongs to certificate %d in it, and not to the first one; write the certificate of the key first, and its issuers behind it", n)
		}
		return fmt.Errorf("%s; write a certificate and the key it was made for", strings.TrimPrefix(err.Error(), "tls: "))
	}
	return nil
}

// holder returns the number of the certificate of a chain to which a key belongs, counted from 1; 0 if it belongs to none.
func holder(chain, key []byte) int {
	n := 0
	for b, rest := pem.Decode(chain); b != nil; b, rest = pem.Decode(rest) {
		n++
		if _, err := tls.X509KeyPair(encode(b), key); err == nil {
			return n
		}
	}
	return 0
}

// minRSA is the size of the smallest RSA keys whose certificates Envoy takes, in bits.
const minRSA = 2048

// strong returns an error if Envoy refuses to show a certificate because of its key.
func strong(leaf *x509.Certificate) error {
	key, ok := leaf.PublicKey.(*rsa.PublicKey)
	if ok && key.N.BitLen() < minRSA {
		return fmt.Errorf("its RSA key has %d bits, and proxies take %d or more; make a certificate with a larger key", key.N.BitLen(), minRSA)
	}
	return nil
}

// Expired says that a certificate has expired; empty if it has not.
func Expired(leaf *x509.Certificate) string {
	if !time.Now().After(leaf.NotAfter) {
		return ""
	}
	return fmt.Sprintf("the certificate has expired on %s, and servers will refuse it; renew it", leaf.NotAfter.UTC().Format(time.RFC3339))
}

// withoutNames says that a certificate for servers names none, so that clients refuse it: they do not look at its common name (RFC 9525, section 1.2). It is
// empty for a certificate with names, and for one that is only for clients by its extended key usage.
func withoutNames(leaf *x509.Certificate) string {
	if len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.URIs)+len(leaf.EmailAddresses) > 0 {
		return ""
	}
	servers := len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0
	for _, usage := range leaf.ExtKeyUsage {
		servers = servers || usage == x509.ExtKeyUsageServerAuth || usage == x509.ExtKeyUsageAny
	}
	if !servers {
		return ""
	}
	return "the certificate names no host, and clients refuse it for any; make one whose subject alternative names are its hosts"
}
