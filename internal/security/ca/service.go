package ca

import (
	"context"
	"crypto"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	security "istio.io/api/security/v1alpha1"

	"github.com/pilotmesh/pilot/internal/security/admission"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// Outcome is the outcome of a request for a certificate.
type Outcome string

// The outcomes.
const (
	// Issued: it was granted.
	Issued Outcome = "issued"
	// Malformed: the request cannot be granted to anybody.
	Malformed Outcome = "malformed"
	// Failed: the authority could not sign.
	Failed Outcome = "failed"
	// Unauthenticated: the caller is not authenticated.
	Unauthenticated Outcome = "unauthenticated"
	// Forbidden: the caller may not have the certificate that it requests.
	Forbidden Outcome = "forbidden"
)

// Signer signs certificates for workloads.
type Signer interface {
	// Sign returns a certificate, its chain and the trusted roots, each as PEM; the root that vouches for it is the last. request is what
	// the caller sent as PEM, and key the public key in it. name is the signer that the caller wishes; empty for any.
	Sign(ctx context.Context, request string, key crypto.PublicKey, of Subject, valid time.Duration, name string) ([]string, error)
}

// Sign implements Signer with the present authority. It refuses a caller on a connection with a revoked certificate, even if the door has
// admitted the caller.
func (k *Keeper) Sign(ctx context.Context, _ string, key crypto.PublicKey, of Subject, valid time.Duration, name string) ([]string, error) {
	if name != "" {
		return nil, status.Errorf(codes.InvalidArgument, "the caller asks for a certificate by the signer %.100q, and this authority signs itself; remove the setting CERT_SIGNER of the proxy", name)
	}
	if state, ok := admission.Secure(ctx); ok {
		if err := k.Revoked(state.VerifiedChains); err != nil {
			return nil, status.Errorf(codes.Unauthenticated, "client certificate: %v", err)
		}
	}
	return k.Authority().Issue(key, of, valid, k.s.Now(), k.s.More().Of("")...)
}

// Impersonation decides whether a caller may have the certificate of another workload.
type Impersonation interface {
	// Allow returns an error if the caller may not.
	Allow(ctx context.Context, caller identity.Caller, id identity.Identity) error
}

// Service answers requests for certificates (istio.v1.auth.IstioCertificateService).
type Service struct {
	security.UnimplementedIstioCertificateServiceServer
	Door   *admission.Door
	Signer Signer
	Limits Limits
	// Impersonation is nil if no caller may have the certificate of another workload.
	Impersonation Impersonation
	// About returns the names in metrics of the workload that a caller is; empty if they are not known. It may be nil.
	About func(ctx context.Context, caller identity.Caller) string
	// Observe is called with the outcome of each request.
	Observe func(Outcome)
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	security.RegisterIstioCertificateServiceServer(r, s)
}

// Keys of the metadata of a request.
const (
	signerKey      = "CertSigner"
	impersonateKey = "ImpersonatedIdentity"
)

// CreateCertificate signs a certificate for the caller.
func (s *Service) CreateCertificate(ctx context.Context, q *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	chain, outcome, err := s.create(ctx, q)
	s.Observe(outcome)
	if err != nil {
		return nil, err
	}
	return &security.IstioCertificateResponse{CertChain: chain}, nil
}

func (s *Service) create(ctx context.Context, q *security.IstioCertificateRequest) ([]string, Outcome, error) {
	caller, err := s.Door.Admit(ctx)
	if err != nil {
		return nil, Unauthenticated, err
	}
	if caller.IsZero() {
		return nil, Unauthenticated, status.Error(codes.Unauthenticated, "certificates are issued over TLS only")
	}
	of := Subject{Identity: caller.Identity}
	fields := q.GetMetadata().GetFields()
	if other := fields[impersonateKey].GetStringValue(); other != "" {
		if of.Identity, err = s.impersonate(ctx, caller, other); err != nil {
			s.Door.Refuse(ctx, "a caller may not have the certificate of another workload", err)
			return nil, Forbidden, status.Error(codes.PermissionDenied, err.Error())
		}
	} else {
		of.About = s.about(ctx, caller)
	}
	key, err := PublicKey(q.GetCsr())
	if err != nil {
		s.Door.Refuse(ctx, "a request for a certificate cannot be granted", err)
		return nil, Malformed, status.Error(codes.InvalidArgument, err.Error())
	}
	chain, err := s.Signer.Sign(ctx, q.GetCsr(), key, of, s.Limits.Bound(q.GetValidityDuration()), fields[signerKey].GetStringValue())
	if err != nil {
		s.Door.Refuse(ctx, "a certificate cannot be signed", err)
		if _, ok := status.FromError(err); ok {
			return nil, Failed, err
		}
		if errors.Is(err, errRequest) {
			return nil, Malformed, status.Error(codes.InvalidArgument, err.Error())
		}
		return nil, Failed, status.Errorf(codes.Unavailable, "the certificate cannot be signed now: %v", err)
	}
	return chain, Issued, nil
}

// about returns the names in metrics of the workload that a caller is. A caller that renews its certificate shows the former one, and no pod: then its
// names stay, if it has any.
func (s *Service) about(ctx context.Context, caller identity.Caller) string {
	if s.About == nil || caller.Pod == (identity.Pod{}) && caller.About != "" {
		return caller.About
	}
	if p, ok := peer.FromContext(ctx); ok {
		if from, ok := p.Addr.(*net.TCPAddr); ok {
			caller.From = from.AddrPort().Addr().Unmap()
		}
	}
	return s.About(ctx, caller)
}

// impersonate returns the identity of another workload if the caller may have its certificate.
func (s *Service) impersonate(ctx context.Context, caller identity.Caller, other string) (identity.Identity, error) {
	id, err := identity.Parse(other)
	switch {
	case err != nil:
		return identity.Identity{}, err
	case s.Impersonation == nil:
		return identity.Identity{}, errors.New("no service account may have certificates of other workloads here (CA_TRUSTED_NODE_ACCOUNTS)")
	case id.TrustDomain != caller.TrustDomain:
		return identity.Identity{}, errors.New("the workload is of another trust domain")
	}
	return id, s.Impersonation.Allow(ctx, caller, id)
}
