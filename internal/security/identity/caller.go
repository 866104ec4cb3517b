package identity

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Credentials are the credentials that a caller presents.
type Credentials struct {
	// Certificate is the client certificate; nil for none. TLS has verified it: a trusted root vouches for it, it is valid now, and the
	// caller has the key.
	Certificate *x509.Certificate
	// Token is a bearer token; empty for none.
	Token string
	// From is the address of the caller, without the port. What waits for an answer about its credentials is bounded by it.
	From string
}

// String names the kinds of credentials that are presented, without the token.
func (c Credentials) String() string {
	switch {
	case c.Certificate != nil && c.Token != "":
		return "a client certificate and a token"
	case c.Certificate != nil:
		return "a client certificate"
	case c.Token != "":
		return "a token"
	}
	return "neither a client certificate nor a token"
}

// GoString is String, so that %#v does not show the token either.
func (c Credentials) GoString() string { return c.String() }

// Caller is an authenticated caller.
type Caller struct {
	Identity
	// Expires is when the caller must authenticate again.
	Expires time.Time
	// Means is how the caller has authenticated, such as "client certificate".
	Means string
	// Pod is the pod to which its token is bound; zero if the token does not say.
	Pod Pod
	// From is the address that it asks from; zero if it is not known.
	From netip.Addr
	// About has the names of its workload in metrics, as its certificate has them; empty if it has none.
	About string
}

// AboutType is the type of the attribute in the subject of a certificate that has the names of the workload in metrics: description (RFC 4519,
// section 2.5). The authority of the mesh writes it; see mesh.WorkloadIdentity.
func AboutType() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 4, 13} }

// aboutOf returns the names in a certificate.
func aboutOf(c *x509.Certificate) string {
	for _, a := range c.Subject.Names {
		if text, ok := a.Value.(string); ok && a.Type.Equal(AboutType()) {
			return text
		}
	}
	return ""
}

// Pod is a pod as a token of Kubernetes names it.
type Pod struct{ Name, UID, Node string }

// Authenticator authenticates callers.
type Authenticator interface {
	// Authenticate returns the caller that presents the credentials. Its error has no part of a token.
	Authenticate(ctx context.Context, c Credentials) (Caller, error)
}

// Any is a list of authenticators. The first one that accepts the credentials decides.
type Any []Authenticator

// Authenticate implements Authenticator. If no one accepts, the error has the reasons of all that had something to check.
func (a Any) Authenticate(ctx context.Context, c Credentials) (Caller, error) {
	var reasons []error
	for _, one := range a {
		caller, err := one.Authenticate(ctx, c)
		switch {
		case err == nil:
			return caller, nil
		case !errors.Is(err, errAbsent):
			reasons = append(reasons, err)
		}
	}
	if len(reasons) == 0 {
		return Caller{}, fmt.Errorf("the caller presents %v that can be checked here; present a certificate of the mesh, or a token for this control plane", c)
	}
	return Caller{}, errors.Join(reasons...)
}

// Certificates accepts client certificates of the mesh.
type Certificates struct {
	// TrustDomains returns the trust domain of the mesh and its aliases.
	TrustDomains func() []string
	// Now is the clock. A certificate may expire while its connection is open.
	Now func() time.Time
}

// Authenticate implements Authenticator.
func (a Certificates) Authenticate(_ context.Context, c Credentials) (Caller, error) {
	if c.Certificate == nil {
		return Caller{}, errAbsent
	}
	uris := c.Certificate.URIs
	if len(uris) != 1 {
		return Caller{}, fmt.Errorf("client certificate: it names %d identities (URI), and must name one", len(uris))
	}
	id, err := Parse(uris[0].String())
	if err != nil {
		return Caller{}, fmt.Errorf("client certificate: %w", err)
	}
	if !a.Now().Before(c.Certificate.NotAfter) {
		return Caller{}, fmt.Errorf("client certificate: it has expired at %s; connect again with a newer one", c.Certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	domains := a.TrustDomains()
	for _, d := range domains {
		if id.TrustDomain == d {
			return Caller{Identity: id, Expires: c.Certificate.NotAfter, Means: "client certificate", About: aboutOf(c.Certificate)}, nil
		}
	}
	return Caller{}, fmt.Errorf("client certificate: its trust domain %q is neither the mesh's own nor an alias of it %q (trustDomain, trustDomainAliases)", id.TrustDomain, domains)
}

// Bind returns an error if a proxy claims another namespace or service account than the caller's. An empty account claims none.
func (c Caller) Bind(namespace, account string) error {
	switch {
	case namespace != c.Namespace:
		return fmt.Errorf("the proxy says that its namespace is %q, and its %s is of %s; give the proxy the namespace of its service account", namespace, c.Means, c.Identity)
	case account != "" && account != c.ServiceAccount:
		return fmt.Errorf("the proxy says that its service account is %q, and its %s is of %s; give the proxy a token of its own service account", account, c.Means, c.Identity)
	}
	return nil
}
