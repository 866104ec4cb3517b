package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// maxToken is the size of the longest token that is looked at, in bytes. Tokens of Kubernetes have about 1.5 KB.
const maxToken = 16 << 10

// leeway is by how much clocks may differ.
const leeway = 10 * time.Second

// algorithms returns the algorithms by which tokens may be signed: only algorithms with a public key, so that the
// published keys cannot sign tokens.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.EdDSA}
}

// Issuer is an issuer whose tokens are accepted.
type Issuer struct {
	// Name is the issuer that tokens must name (iss), and Audiences are the audiences; tokens must name one of them (aud).
	Name      string
	Audiences []string
	// Means is the kind of the tokens, in errors.
	Means string
	// Keys returns the public keys for a token of a caller at an address. fresh asks for keys that are newer than keys that have been
	// returned so far, because none of these has signed the token.
	Keys func(ctx context.Context, from string, fresh bool) ([]jose.JSONWebKey, error)
	// TrustDomain returns the trust domain of the issuer's service accounts.
	TrustDomain func() string
	// Now is the clock.
	Now func() time.Time
}

// Authenticate implements Authenticator.
func (i Issuer) Authenticate(ctx context.Context, c Credentials) (Caller, error) {
	if c.Token == "" {
		return Caller{}, errAbsent
	}
	token, claims, err := read(c.Token)
	if err != nil {
		return Caller{}, fmt.Errorf("%s: %w", i.Means, err)
	}
	if claims.Issuer != i.Name {
		return Caller{}, errAbsent // another authenticator knows who issued it, or none does
	}
	// The claims are checked before anything is done for the token, and again when its signature is good.
	err = i.check(claims)
	if err == nil {
		err = i.verify(ctx, token, Network(c.From), &claims)
	}
	if err != nil {
		return Caller{}, fmt.Errorf("%s: %w", i.Means, err)
	}
	id, err := fromSubject(i.TrustDomain(), claims.Subject)
	if err != nil {
		return Caller{}, fmt.Errorf("%s: %w", i.Means, err)
	}
	return Caller{Identity: id, Expires: claims.Expiry.Time(), Means: i.Means}, nil
}

// read reads a token without checking its signature. Its errors quote nothing of it.
func read(text string) (*jwt.JSONWebToken, jwt.Claims, error) {
	if len(text) > maxToken {
		return nil, jwt.Claims{}, fmt.Errorf("it has %d bytes, and the most is %d", len(text), maxToken)
	}
	token, err := jwt.ParseSigned(text, algorithms())
	if err != nil {
		return nil, jwt.Claims{}, errors.New("it is no signed token (JWT), or its algorithm is none that is accepted")
	}
	var claims jwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return nil, jwt.Claims{}, errors.New("its claims cannot be read")
	}
	return token, claims, nil
}

// verify checks the signature and the claims, which it reads again.
func (i Issuer) verify(ctx context.Context, token *jwt.JSONWebToken, from string, claims *jwt.Claims) error {
	var last error
	for _, fresh := range []bool{false, true} {
		keys, err := i.Keys(ctx, from, fresh)
		if err != nil {
			last = err
			continue
		}
		for _, key := range keys {
			verified := jwt.Claims{}
			if !suits(key, token.Headers[0]) || token.Claims(key.Key, &verified) != nil {
				continue
			}
			*claims = verified
			return i.check(verified)
		}
		last = errors.New("none of the issuer's keys has signed it")
	}
	return last
}

// suits reports whether a key may be used for a token with the header.
func suits(key jose.JSONWebKey, h jose.Header) bool {
	return key.IsPublic() && (h.KeyID == "" || key.KeyID == "" || key.KeyID == h.KeyID) && (key.Algorithm == "" || key.Algorithm == h.Algorithm)
}

// check checks the claims of a token except its subject.
func (i Issuer) check(c jwt.Claims) error {
	if c.Issuer != i.Name {
		return fmt.Errorf("its issuer is %.200q, not %q", c.Issuer, i.Name)
	}
	if err := audience(c, i.Audiences); err != nil {
		return err
	}
	if c.Expiry == nil {
		return errors.New("it never expires; get one that does")
	}
	return validity(c, i.Now())
}

// audience returns an error if a token is for none of some audiences.
func audience(c jwt.Claims, audiences []string) error {
	if slices.ContainsFunc(c.Audience, func(a string) bool { return slices.Contains(audiences, a) }) {
		return nil
	}
	return fmt.Errorf("it is for %.200q, not for %q; get one for that audience", []string(c.Audience), audiences)
}

// validity returns an error if a token is not valid at a time.
func validity(c jwt.Claims, now time.Time) error {
	switch {
	case c.Expiry != nil && !now.Before(c.Expiry.Time()):
		return fmt.Errorf("it has expired at %s; get a new one", c.Expiry.Time().UTC().Format(time.RFC3339))
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.Time()):
		return fmt.Errorf("it is not valid before %s", c.NotBefore.Time().UTC().Format(time.RFC3339))
	case c.IssuedAt != nil && now.Add(leeway).Before(c.IssuedAt.Time()):
		return fmt.Errorf("it was issued at %s, which is later than now; set the clocks", c.IssuedAt.Time().UTC().Format(time.RFC3339))
	}
	return nil
}
