package identity

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

// Review is the answer of the API server of a cluster about a token.
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
	maxReviews  = 16384
	// maxReviewing is how many questions the API server is asked at the same time, and reviewTimeout how long it has for one.
	maxReviewing  = 64
	reviewTimeout = 10 * time.Second
	// knownFor is how long a good token goes before unknown ones when it is asked about again.
	knownFor = time.Hour
	// maxSharing is how many callers wait for the answer about one token.
	maxSharing = 16
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
	waiting lines
	// asking is how many questions the API server has now.
	asking int
}

// answer is an answer of the API server, or the question.
type answer struct {
	key  [sha256.Size]byte
	from string
	// known is true if the token was good when it was last asked about.
	known bool
	// token is the token of the question; empty when there is an answer.
	token string
	// callers is how many wait.
	callers int
	done    chan struct{} // closed when there is an answer
	until   time.Time
	review  Review
	err     error
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
	// The API server checks the token. The checks here only refuse tokens that cannot be valid.
	_, claims, err := read(c.Token)
	if err != nil {
		return Caller{}, fmt.Errorf("%s: %w", kubernetesMeans, err)
	}
	if claims.Issuer == localIssuer {
		return Caller{}, errAbsent
	}
	if err := a.possible(claims); err != nil {
		return Caller{}, fmt.Errorf("%s: %w", kubernetesMeans, err)
	}
	review, err := a.ask(ctx, c.Token, Network(c.From))
	switch {
	case err != nil:
		return Caller{}, fmt.Errorf("%s: the API server cannot be asked: %w", kubernetesMeans, err)
	case review.User == "":
		return Caller{}, fmt.Errorf("%s: the API server refuses it: %.300s", kubernetesMeans, review.Refusal)
	}
	id, err := fromSubject(a.trustDomain(), review.User)
	if err != nil {
		return Caller{}, fmt.Errorf("%s: %w", kubernetesMeans, err)
	}
	return Caller{Identity: id, Expires: expiry(claims, a.now()), Means: kubernetesMeans, Pod: review.Pod}, nil
}

// possible returns an error if the API server cannot accept a token as one of a service account for the control plane, whatever key signed
// it. Old tokens of Kubernetes have neither audiences nor an end.
func (a *Reviewed) possible(c jwt.Claims) error {
	if _, err := fromSubject("any", c.Subject); err != nil {
		return err
	}
	if len(c.Audience) > 0 {
		if err := audience(c, a.audiences); err != nil {
			return err
		}
	}
	return validity(c, a.now())
}

// unlimited is how long a token counts that does not say when it expires. Old tokens of Kubernetes do not.
const unlimited = 24 * time.Hour

func expiry(c jwt.Claims, now time.Time) time.Time {
	if c.Expiry == nil {
		return now.Add(unlimited)
	}
	return c.Expiry.Time()
}

// ask asks the API server once, however many ask for the same token at the same time. A caller that goes away fails no other one.
func (a *Reviewed) ask(ctx context.Context, token, from string) (Review, error) {
	one, err := a.question(token, from)
	if err != nil {
		return Review{}, err
	}
	select {
	case <-one.done:
		return one.review, one.err
	case <-ctx.Done():
		a.leave(one)
		return Review{}, ctx.Err()
	}
}

// question returns the answer that is known of a token, or the question that is asked about it now.
func (a *Reviewed) question(token, from string) (*answer, error) {
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.answers[key]
	switch {
	case known != nil && known.token != "" && known.callers >= maxSharing:
		return nil, ErrBusy
	case known != nil && (known.token != "" || a.now().Before(known.until)):
		known.callers++
		return known, nil
	}
	one := &answer{key: key, from: from, token: token, callers: 1, done: make(chan struct{}), known: known != nil && known.review.User != ""}
	if a.asking < maxReviewing {
		a.asking++
		go a.review(one)
	} else if gone, ok := a.waiting.add(one); !ok {
		return nil, ErrBusy
	} else if gone != nil {
		a.settle(gone, Review{}, ErrBusy)
	}
	a.makeRoom()
	a.answers[key] = one
	return one, nil
}

// leave notes that a caller does not wait any more. A question that no caller waits for is not asked.
func (a *Reviewed) leave(one *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one.callers--
	if one.callers > 0 || one.token == "" {
		return
	}
	total := a.waiting.total
	if a.waiting.remove(one); a.waiting.total < total {
		a.settle(one, Review{}, context.Canceled)
	}
}

// review asks the API server, and then starts the next waiting question.
func (a *Reviewed) review(one *answer) {
	for one != nil {
		ctx, cancel := context.WithTimeout(context.Background(), reviewTimeout)
		review, err := a.reviewer.Review(ctx, one.token, a.audiences)
		cancel()
		a.mu.Lock()
		a.settle(one, review, err)
		if one = a.waiting.next(); one == nil {
			a.asking--
		}
		a.mu.Unlock()
	}
}

// settle gives an answer to the callers that wait for it. An error is not remembered.
func (a *Reviewed) settle(one *answer, review Review, err error) {
	one.review, one.err, one.token = review, err, ""
	switch {
	case err != nil:
		if a.answers[one.key] == one {
			delete(a.answers, one.key)
		}
	case review.User == "":
		one.until = a.now().Add(refusedFor)
	default:
		one.until = a.now().Add(reviewedFor)
	}
	close(one.done)
}

// makeRoom forgets answers if there are too many: first expired ones, then refusals, then whatever comes. Questions stay: they
// are bounded.
func (a *Reviewed) makeRoom() {
	now := a.now()
	for _, less := range []func(*answer) bool{
		func(o *answer) bool {
			return o.review.User == "" && !now.Before(o.until) || now.After(o.until.Add(knownFor))
		},
		func(o *answer) bool { return o.review.User == "" },
		func(o *answer) bool { return !now.Before(o.until) },
		func(*answer) bool { return true },
	} {
		if len(a.answers) < maxReviews {
			return
		}
		for k, one := range a.answers {
			if one.token == "" && less(one) {
				delete(a.answers, k)
			}
		}
	}
}
