package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

// Review is what the API server of a cluster says of a token.
type Review struct {
	// User is the name of the user, such as system:serviceaccount:NAMESPACE:ACCOUNT; empty if the token is not valid.
	User string
	Pod  Pod
	// Refusal is why it is not valid.
	Refusal string
}

// Reviewer asks an API server about a token.
type Reviewer interface {
	Review(ctx context.Context, token string, audiences []string) (Review, error)
}

// How long the answers of an API server count, and how many are remembered. A token that was revoked is refused after reviewedFor.
const (
	reviewedFor = 10 * time.Second
	refusedFor  = 2 * time.Second
	maxReviews  = 4096
)

const kubernetesMeans = "Kubernetes token"

// Reviewed accepts tokens of Kubernetes.
type Reviewed struct {
	reviewer    Reviewer
	audiences   []string
	trustDomain func() string
	now         func() time.Time

	mu      sync.Mutex
	answers map[[sha256.Size]byte]*answer // by hash of the token
}

// answer is an answer of the API server, or the question.
type answer struct {
	done   chan struct{} // closed when there is an answer
	until  time.Time
	review Review
	err    error
}

// NewReviewed returns an authenticator that asks an API server about tokens for some audiences.
func NewReviewed(r Reviewer, audiences []string, trustDomain func() string, now func() time.Time) *Reviewed {
	return &Reviewed{reviewer: r, audiences: audiences, trustDomain: trustDomain, now: now, answers: map[[sha256.Size]byte]*answer{}}
}

// Authenticate implements Authenticator.
func (a *Reviewed) Authenticate(ctx context.Context, c Credentials) (Caller, error) {
	if c.Token == "" {
		return Caller{}, errAbsent
	}
	if len(c.Token) > maxToken {
		return Caller{}, fmt.Errorf("%s: it has %d bytes, and the most is %d", kubernetesMeans, len(c.Token), maxToken)
	}
	// The API server checks the token. What is read here is only when it expires, and whose it is not.
	_, claims, err := read(c.Token)
	if err != nil {
		return Caller{}, fmt.Errorf("%s: %w", kubernetesMeans, err)
	}
	if claims.Issuer == LocalIssuer {
		return Caller{}, errAbsent
	}
	review, err := a.ask(ctx, c.Token)
	switch {
	case err != nil:
		return Caller{}, fmt.Errorf("%s: the API server cannot be asked: %w", kubernetesMeans, err)
	case review.User == "":
		return Caller{}, fmt.Errorf("%s: the API server refuses it: %.300s", kubernetesMeans, review.Refusal)
	}
	id, err := FromSubject(a.trustDomain(), review.User)
	if err != nil {
		return Caller{}, fmt.Errorf("%s: %w", kubernetesMeans, err)
	}
	return Caller{Identity: id, Expires: expiry(claims, a.now()), Means: kubernetesMeans, Pod: review.Pod}, nil
}

// unlimited is how long a token counts that does not say when it expires. Old tokens of Kubernetes do not.
const unlimited = 24 * time.Hour

func expiry(c jwt.Claims, now time.Time) time.Time {
	if c.Expiry == nil {
		return now.Add(unlimited)
	}
	return c.Expiry.Time()
}

// ask asks the API server once, however many ask for the same token at the same time.
func (a *Reviewed) ask(ctx context.Context, token string) (Review, error) {
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	known := a.answers[key]
	if known != nil && (known.until.IsZero() || a.now().Before(known.until)) {
		a.mu.Unlock()
		select {
		case <-known.done:
			return known.review, known.err
		case <-ctx.Done():
			return Review{}, ctx.Err()
		}
	}
	a.makeRoom()
	mine := &answer{done: make(chan struct{})}
	a.answers[key] = mine
	a.mu.Unlock()

	mine.review, mine.err = a.reviewer.Review(ctx, token, a.audiences)
	a.mu.Lock()
	switch {
	case mine.err != nil:
		delete(a.answers, key)
	case mine.review.User == "":
		mine.until = a.now().Add(refusedFor)
	default:
		mine.until = a.now().Add(reviewedFor)
	}
	a.mu.Unlock()
	close(mine.done)
	if errors.Is(mine.err, context.Canceled) && ctx.Err() == nil {
		return a.ask(ctx, token) // it was another caller that went away
	}
	return mine.review, mine.err
}

// makeRoom forgets what no longer counts, and everything if that does not suffice.
func (a *Reviewed) makeRoom() {
	if len(a.answers) < maxReviews {
		return
	}
	now := a.now()
	for k, one := range a.answers {
		if !one.until.IsZero() && !now.Before(one.until) {
			delete(a.answers, k)
		}
	}
	if len(a.answers) >= maxReviews {
		clear(a.answers)
	}
}
