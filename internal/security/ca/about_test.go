package ca

import (
	"context"
	"crypto"
	"crypto/x509"
	"net"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/structpb"

	security "istio.io/api/security/v1alpha1"

	"github.com/pilotmesh/pilot/internal/security/admission"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// aboutCase is a request for a certificate. The fields are of its metadata, and want is what the certificate says about the workload.
type aboutCase struct {
	name   string
	caller identity.Caller
	fields map[string]any
	want   string
}

// Authenticate implements identity.Authenticator.
func (c aboutCase) Authenticate(context.Context, identity.Credentials) (identity.Caller, error) {
	return c.caller, nil
}

// Allow implements Impersonation.
func (aboutCase) Allow(context.Context, identity.Caller, identity.Identity) error { return nil }

// issuer is a Signer with an authority.
type issuer struct{ *Authority }

// Sign implements Signer.
func (i issuer) Sign(_ context.Context, _ string, key crypto.PublicKey, of Subject, valid time.Duration, _ string) ([]string, error) {
	return i.Issue(key, of, valid, time.Now())
}

// certificate sends the request to the service, and returns the certificate.
func (c aboutCase) certificate(t *testing.T, a *Authority) *x509.Certificate {
	t.Helper()
	s := &Service{
		Door: &admission.Door{Callers: c}, Signer: issuer{a}, Limits: Limits{Default: time.Hour, Max: time.Hour}, Impersonation: c, Observe: func(Outcome) {},
		About: func(_ context.Context, caller identity.Caller) string {
			if caller.Pod.Name == "" {
				return "at " + caller.From.String()
			}
			return "of " + caller.Pod.Name
		},
	}
	fields, err := structpb.NewStruct(c.fields)
	if err != nil {
		t.Fatal(err)
	}
	id, err := url.Parse(reviews.String())
	if err != nil {
		t.Fatal(err)
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 0, 9)}, AuthInfo: credentials.TLSInfo{}})
	chain, err := s.CreateCertificate(ctx, &security.IstioCertificateRequest{Csr: request(t, ecKey(t), &x509.CertificateRequest{URIs: []*url.URL{id}}), Metadata: fields})
	if err != nil {
		t.Fatal(err)
	}
	return leafOf(t, chain.CertChain)
}

// TestAbout: the certificate of a caller has the names of the pod of its token. Without a token it keeps the names of its former certificate. Without both, its
// address decides. A certificate for
// another workload has none, because the names are of the caller.
func TestAbout(t *testing.T) {
	a := selfSigned(t, time.Hour, 0, time.Now())
	former, err := a.Issue(&ecKey(t).PublicKey, Subject{Identity: reviews, About: "former"}, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificates := identity.Certificates{TrustDomains: func() []string { return []string{reviews.TrustDomain} }, Now: time.Now}
	renewing, err := certificates.Authenticate(t.Context(), identity.Credentials{Certificate: leafOf(t, former)})
	if err != nil {
		t.Fatal(err)
	}
	bound := identity.Caller{Identity: reviews, Pod: identity.Pod{Name: "reviews-1"}}
	for _, c := range []aboutCase{
		{"a token of a pod", bound, nil, "of reviews-1"},
		{"the former certificate", renewing, nil, "former"},
		{"neither", identity.Caller{Identity: reviews}, nil, "at 10.1.0.9"},
		{"another workload", bound, map[string]any{impersonateKey: reviews.String()}, ""},
	} {
		leaf := c.certificate(t, a)
		again, err := certificates.Authenticate(t.Context(), identity.Credentials{Certificate: leaf})
		if err != nil || again.About != c.want || len(leaf.URIs) != 1 || leaf.URIs[0].String() != reviews.String() {
			t.Errorf("%s: the certificate says %q about %v, want %q: %v", c.name, again.About, leaf.URIs, c.want, err)
		}
	}
}
