package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/security/identity"
)

// SigningRequests has certificates signed by an external signer.
type SigningRequests interface {
	// Obtain returns a certificate and its chain as PEM. request is a CSR as PEM. An error of gRPC says whose mistake it is.
	Obtain(ctx context.Context, signer, request string, valid time.Duration) ([]byte, error)
}

// Registrar is a registration authority: it authenticates the caller, and leaves signing to an external authority. That
// authority signs a request as it is, so a request must say exactly what the caller may have.
type Registrar struct {
	Requests SigningRequests
	// Signer signs for callers that wish no other one. Domain is the prefix of the names that callers wish, with a
	// slash. Either may be empty.
	Signer, Domain string
	// Roots returns the roots that the mesh trusts for certificates of a signer.
	Roots func(signer string) []*x509.Certificate
	// Now is the clock.
	Now func() time.Time
}

// Sign implements Signer.
func (r *Registrar) Sign(ctx context.Context, request string, key crypto.PublicKey, of Subject, valid time.Duration, name string) ([]string, error) {
	signer, err := r.signer(name)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	q, err := parseRequest(request)
	if err != nil {
		return nil, err
	}
	if err := onlyAsks(q, of.Identity); err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	roots := r.Roots(signer)
	if len(roots) == 0 {
		return nil, fmt.Errorf("the mesh knows no root of the signer %s: put its root into caCertificates of the mesh configuration, with certSigners: [%s]", signer, signer)
	}
	answer, err := r.Requests.Obtain(ctx, signer, request, valid)
	if err != nil {
		return nil, err
	}
	list, err := checkAnswer(answer, roots, key, of.Identity, r.Now())
	if err != nil {
		return nil, fmt.Errorf("what the signer %s answers is not used: %w", signer, err)
	}
	return list, nil
}

// signer returns the full name of the signer for a caller.
func (r *Registrar) signer(wish string) (string, error) {
	switch {
	case wish == "" && r.Signer == "":
		return "", errors.New("the caller wishes no signer, and there is none for all: set CERT_SIGNER at the proxy, or K8S_SIGNER at the control plane")
	case wish == "":
		return r.Signer, nil
	case r.Domain == "":
		return "", fmt.Errorf("the caller wishes the signer %.100q, and callers may wish none here: remove CERT_SIGNER at the proxy, or set CERT_SIGNER_DOMAIN at the control plane", wish)
	case strings.Contains(wish, "/"):
		return "", fmt.Errorf("the caller wishes the signer %.100q: name it without its domain, which is %s", wish, r.Domain)
	}
	return r.Domain + "/" + wish, nil
}

// Object identifiers and tags of X.509.
const (
	tagURI       = 6 // of a GeneralName
	classContext = 2
)

// onlyAsks returns an error unless a request asks for the name of an identity and nothing else. The subject counts,
// too: an API server takes it for the name and the groups of a user.
func onlyAsks(q *x509.CertificateRequest, id identity.Identity) error {
	for _, name := range q.Subject.Names {
		if text, ok := name.Value.(string); !ok || text != "" {
			return errors.New("it has a subject, and the signer would sign that, too; leave the subject empty")
		}
	}
	names, err := asn1.Marshal([]asn1.RawValue{{Class: classContext, Tag: tagURI, Bytes: []byte(id.String())}})
	if err != nil {
		return err
	}
	asked := false
	for _, e := range q.Extensions {
		switch {
		case !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}): // subjectAltName
			return fmt.Errorf("it asks for the extension %s, and the signer would sign that, too", e.Id)
		case asked || !bytes.Equal(e.Value, names):
			return fmt.Errorf("it asks for other names than the caller's, %s", id)
		}
		asked = true
	}
	if !asked {
		return fmt.Errorf("it must ask for the name of the caller, %s, because the signer signs it as it is", id)
	}
	return nil
}

// checkAnswer checks the certificate from a signer, and lists it with its chain and roots, each as PEM. The root that
// vouches for it is the last.
func checkAnswer(answer []byte, roots []*x509.Certificate, key crypto.PublicKey, id identity.Identity, now time.Time) ([]string, error) {
	certs, err := parseCertificates(answer)
	if err != nil {
		return nil, err
	}
	leaf := certs[0]
	own, ok := key.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !own.Equal(leaf.PublicKey):
		return nil, errors.New("the certificate is for another key")
	case len(leaf.URIs) != 1 || leaf.URIs[0].String() != id.String() || len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) > 0:
		return nil, fmt.Errorf("the certificate is not one of %s alone", id)
	case leaf.IsCA:
		return nil, errors.New("the certificate may sign others")
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, c := range roots {
		options.Roots.AddCert(c)
	}
	for _, c := range certs[1:] {
		options.Intermediates.AddCert(c)
	}
	ways, err := leaf.Verify(options)
	if err != nil {
		return nil, fmt.Errorf("no root of the mesh vouches for the certificate: %w; put the root of the signer into caCertificates of the mesh configuration", err)
	}
	way := ways[0]
	root := way[len(way)-1]
	var list []string
	for _, c := range way[:len(way)-1] {
		list = append(list, string(encode(c)))
	}
	for _, c := range roots {
		if !c.Equal(root) {
			list = append(list, string(encode(c)))
		}
	}
	return append(list, string(encode(root))), nil
}
