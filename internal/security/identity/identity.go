// Package identity authenticates the callers of the control plane: a caller is a workload that asks for a certificate or for configuration.
//
// A caller presents a client certificate or a token. Authenticators check these credentials and return a Caller: the
// identity of a service account, until when that is known, and by what means. Nothing that a caller says of itself
// counts: neither its node id nor its metadata nor the names in a request for a certificate.
//
// Invariants: Tokens appear in no error, log or cache. A cache has hashes of tokens only, is bounded, and forgets after a bounded
// time. Credentials that cannot be checked are refused. Nothing that an unknown caller sends waits without bound: the claims of a token are checked
// before the API server or an issuer is asked about it, and waiting tokens are bounded for each address, and shared evenly among addresses.
//
// Goroutines: one per question to the API server, a few at a time, and one per issuer whose keys are fetched. Each ends after a bounded
// time. Authenticators may be used by many at the same time.
package identity

import (
	"errors"
	"fmt"
	"strings"
)

// Identity is a service account of a namespace in a trust domain: spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT.
type Identity struct{ TrustDomain, Namespace, ServiceAccount string }

const scheme = "spiffe://"

// Limits of the parts of an identity. A SPIFFE ID has at most 2048 bytes.
const maxPart = 255

// String returns the SPIFFE ID.
func (i Identity) String() string {
	return scheme + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// IsZero reports whether there is no identity.
func (i Identity) IsZero() bool { return i == Identity{} }

// Parse parses a SPIFFE ID of a service account. It accepts one spelling only, so that equal identities are equal texts.
func Parse(id string) (Identity, error) {
	rest, ok := strings.CutPrefix(id, scheme)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return Identity{}, fmt.Errorf("%.200q is not the identity of a service account: spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT", id)
	}
	i := Identity{TrustDomain: parts[0], Namespace: parts[2], ServiceAccount: parts[4]}
	return i, i.Check()
}

// Check returns an error if a part is empty or has a character that may not be in it.
func (i Identity) Check() error {
	for _, p := range []struct{ what, text string }{
		{"trust domain", i.TrustDomain}, {"namespace", i.Namespace}, {"service account", i.ServiceAccount},
	} {
		switch {
		case p.text == "":
			return fmt.Errorf("the %s is empty", p.what)
		case len(p.text) > maxPart:
			return fmt.Errorf("the %s has %d bytes, and the most is %d", p.what, len(p.text), maxPart)
		case strings.ContainsFunc(p.text, odd) || p.text == "." || p.text == "..":
			return fmt.Errorf("the %s %.80q has a character that is not allowed; it has small letters, digits, hyphens, dots and underscores", p.what, p.text)
		}
	}
	return nil
}

func odd(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
}

// accountPrefix begins the name of a service account in a token: system:serviceaccount:NAMESPACE:ACCOUNT.
const accountPrefix = "system:serviceaccount:"

// Subject returns the name of a service account as tokens have it.
func Subject(namespace, account string) string { return accountPrefix + namespace + ":" + account }

// fromSubject returns the identity of the service account that a token names.
func fromSubject(trustDomain, subject string) (Identity, error) {
	rest, ok := strings.CutPrefix(subject, accountPrefix)
	namespace, account, cut := strings.Cut(rest, ":")
	if !ok || !cut {
		return Identity{}, fmt.Errorf("its subject %.200q is no service account (system:serviceaccount:NAMESPACE:ACCOUNT)", subject)
	}
	i := Identity{TrustDomain: trustDomain, Namespace: namespace, ServiceAccount: account}
	return i, i.Check()
}

// ParseAccount parses NAMESPACE/ACCOUNT.
func ParseAccount(text string) (namespace, account string, err error) {
	namespace, account, ok := strings.Cut(text, "/")
	if err := (Identity{"any", namespace, account}).Check(); !ok || err != nil {
		return "", "", fmt.Errorf("%q is not NAMESPACE/SERVICE-ACCOUNT, such as shop/reviews", text)
	}
	return namespace, account, nil
}

// ErrBusy means that too many callers wait to be let in. Nothing is said about the credentials.
var ErrBusy = errors.New("too many callers wait until it is known who they are; try again")

// errAbsent means that a caller has presented nothing that an authenticator could check.
var errAbsent = errors.New("nothing was presented")
