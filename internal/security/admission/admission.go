// Package admission lets callers of the control plane in, or refuses them: for each call it takes the credentials from the connection
// and the metadata, and asks the authenticators whose they are.
//
// Invariants: A call over TLS without credentials that can be checked is refused, and so is one whose certificate has been revoked since
// its connection began. A call without TLS has no identity: to open
// such a port is to decide that. Refusals are logged at a bounded rate, and counted; neither has a part of a token or certificate.
//
// Goroutines: none.
package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/security/identity"
)

// Door admits callers.
type Door struct {
	// Callers authenticates them.
	Callers identity.Authenticator
	// Revoked returns an error if a certificate of the chains that TLS has verified is revoked now; nil if none ever is.
	Revoked func(chains [][]*x509.Certificate) error
	// Pace, unless nil, is where refusals are noted, so that the next connections of their addresses wait.
	Pace *Pace
	// Refused is called for each refusal; nil to call nothing.
	Refused func()
	// Log is where refusals are logged.
	Log *slog.Logger

	log Rate
}

// wrapped is the AuthInfo of a connection that contains the AuthInfo of its TLS.
type wrapped interface {
	credentials.AuthInfo
	Inner() credentials.AuthInfo
}

// Secure returns the state of the TLS connection of a call, and whether it has one.
func Secure(ctx context.Context) (tls.ConnectionState, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return tls.ConnectionState{}, false
	}
	info := p.AuthInfo
	for {
		if w, ok := info.(wrapped); ok {
			info = w.Inner()
			continue
		}
		t, ok := info.(credentials.TLSInfo)
		return t.State, ok
	}
}

// Admit returns the caller; the zero Caller if the call comes without TLS. Its error is a gRPC status.
func (d *Door) Admit(ctx context.Context) (identity.Caller, error) {
	state, ok := Secure(ctx)
	if !ok {
		return identity.Caller{}, nil
	}
	caller, err := d.authenticate(ctx, state)
	switch {
	case err == nil:
		return caller, nil
	case errors.Is(err, identity.ErrBusy):
		d.Refuse(ctx, "a caller is refused, because too many wait to be let in", err)
		return identity.Caller{}, status.Error(codes.Unavailable, err.Error())
	}
	d.Refuse(ctx, "a caller is refused, because it has not shown who it is", err)
	return identity.Caller{}, status.Error(codes.Unauthenticated, err.Error())
}

// authenticate asks the revocation lists first: a connection with a revoked certificate is good for nothing, with a token neither.
func (d *Door) authenticate(ctx context.Context, state tls.ConnectionState) (identity.Caller, error) {
	if d.Revoked != nil {
		if err := d.Revoked(state.VerifiedChains); err != nil {
			return identity.Caller{}, fmt.Errorf("client certificate: %w", err)
		}
	}
	return d.Callers.Authenticate(ctx, identity.Credentials{Certificate: certificate(state), Token: token(ctx), From: host(ctx)})
}

// host returns the address of a caller, without the port.
func host(ctx context.Context) string {
	at := from(ctx)
	if host, _, err := net.SplitHostPort(at); err == nil {
		return host
	}
	return at
}

// Refuse counts and logs a refusal.
func (d *Door) Refuse(ctx context.Context, what string, reason error) {
	if d.Refused != nil {
		d.Refused()
	}
	if p, ok := peer.FromContext(ctx); ok && d.Pace != nil && !errors.Is(reason, identity.ErrBusy) {
		d.Pace.Refused(p.Addr, time.Now())
	}
	if ok, more := d.log.Allow(time.Now()); ok {
		d.Log.Warn(what, "from", from(ctx), "reason", reason, "refusals_not_logged", more) //nolint:sloglint // callers pass constants
	}
}

// certificate returns the certificate of the client, which TLS has verified.
func certificate(s tls.ConnectionState) *x509.Certificate {
	if len(s.VerifiedChains) == 0 || len(s.PeerCertificates) == 0 {
		return nil
	}
	return s.PeerCertificates[0]
}

const bearer = "Bearer "

// token returns the bearer token of a call; empty if there is none or more than one.
func token(ctx context.Context) string {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 || len(values[0]) < len(bearer) || !strings.EqualFold(values[0][:len(bearer)], bearer) {
		return ""
	}
	return strings.TrimSpace(values[0][len(bearer):])
}

func from(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return "unknown"
}

// Rate limits how often something is logged: five times at once, and then every ten seconds. The zero value is ready to use.
type Rate struct {
	mu      sync.Mutex
	tokens  float64
	last    time.Time
	skipped int
}

const (
	burst    = 5
	interval = 10 * time.Second
)

// Allow reports whether to log now, and how many times it has not allowed it since the last time.
func (r *Rate) Allow(now time.Time) (ok bool, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		r.tokens = burst
	} else {
		r.tokens = min(burst, r.tokens+float64(now.Sub(r.last))/float64(interval))
	}
	r.last = now
	if r.tokens < 1 {
		r.skipped++
		return false, 0
	}
	r.tokens--
	skipped, r.skipped = r.skipped, 0
	return true, skipped
}
