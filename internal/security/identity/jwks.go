package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/pilotmesh/pilot/internal/run/fetch"
)

// Limits of fetching keys.
const (
	fetchTimeout = 5 * time.Second
	maxKeySet    = 1 << 20
	maxKeys      = 100
	// refetchPause is the shortest time between two fetches, whatever tokens come.
	refetchPause = 10 * time.Second
	// keysFor is how old keys may be before they are fetched again.
	keysFor = 20 * time.Minute
	// maxForKeys is how many tokens wait while keys are fetched that may have signed them, and maxForKeysFrom how many of one address.
	maxForKeys     = 4096
	maxForKeysFrom = 256
)

const oidcMeans = "OIDC token"

// Rule is an issuer of OIDC tokens whose tokens are accepted, as the environment variable JWT_RULE has it.
type Rule struct {
	Issuer    string   `json:"issuer"`
	Audiences []string `json:"audiences"`
	JWKSURI   string   `json:"jwksUri"`
	JWKS      string   `json:"jwks"`
}

// ParseRule parses a rule in JSON.
func ParseRule(text string) (Rule, error) {
	var r Rule
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Rule{}, fmt.Errorf(`it is no JSON object such as {"issuer": "https://accounts.example.com", "audiences": ["istio-ca"]}: %w`, err)
	}
	switch {
	case r.Issuer == "":
		return Rule{}, errors.New("it names no issuer")
	case r.JWKS == "" && r.JWKSURI == "" && !strings.HasPrefix(r.Issuer, "https://") && !strings.HasPrefix(r.Issuer, "http://"):
		return Rule{}, fmt.Errorf("the issuer %q is no URL where its keys could be found; write jwksUri", r.Issuer)
	}
	if r.JWKS != "" {
		if _, err := parseKeys([]byte(r.JWKS)); err != nil {
			return Rule{}, fmt.Errorf("jwks: %w", err)
		}
	}
	return r, nil
}

// Accept returns the issuer that a rule describes. audiences are the audiences for a rule that names none.
func (r Rule) Accept(audiences []string, client *http.Client, trustDomain func() string, now func() time.Time) Issuer {
	if len(r.Audiences) > 0 {
		audiences = r.Audiences
	}
	i := Issuer{Name: r.Issuer, Audiences: audiences, Means: oidcMeans, TrustDomain: trustDomain, Now: now}
	if r.JWKS != "" {
		keys, err := parseKeys([]byte(r.JWKS))
		i.Keys = func(context.Context, string, bool) ([]jose.JSONWebKey, error) { return keys, err }
		return i
	}
	i.Keys = (&keySet{rule: r, client: client, now: now}).keys
	return i
}

// keySet has the public keys of an issuer, which it fetches when they are needed, beside the tokens whose key is known. It keeps the last
// good ones.
type keySet struct {
	rule   Rule
	client *http.Client
	now    func() time.Time

	mu      sync.Mutex
	known   []jose.JSONWebKey
	err     error
	began   time.Time     // when the last fetch began
	good    time.Time     // when the last good fetch began
	running chan struct{} // closed when the fetch ends that runs now; nil if none does
	// waiting is how many tokens wait for it, by the address of the caller, and total how many in all.
	waiting map[string]int
	total   int
}

// keys implements Issuer.Keys.
func (s *keySet) keys(ctx context.Context, from string, fresh bool) ([]jose.JSONWebKey, error) {
	now := s.now()
	s.mu.Lock()
	if fresh || s.known == nil || now.Sub(s.good) > keysFor {
		s.start(now)
	}
	known, running, err := s.known, s.running, s.err
	switch {
	case known != nil && (!fresh || running == nil):
		s.mu.Unlock()
		return known, nil
	case running == nil:
		s.mu.Unlock()
		return nil, s.none(err)
	case s.waiting[from] >= maxForKeysFrom || s.total >= maxForKeys:
		s.mu.Unlock()
		return nil, ErrBusy
	}
	s.count(from, 1)
	s.mu.Unlock()
	select {
	case <-running:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(from, -1)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.known == nil:
		return nil, s.none(s.err)
	}
	return s.known, nil
}

func (s *keySet) none(err error) error {
	return fmt.Errorf("the keys of its issuer %s are not available: %w", s.rule.Issuer, err)
}

// count changes how many tokens of an address wait.
func (s *keySet) count(from string, by int) {
	if s.waiting == nil {
		s.waiting = map[string]int{}
	}
	s.total += by
	if s.waiting[from] += by; s.waiting[from] == 0 {
		delete(s.waiting, from)
	}
}

// start begins to fetch the keys, unless that runs, or began a moment ago.
func (s *keySet) start(now time.Time) {
	if s.running != nil || !s.began.IsZero() && now.Sub(s.began) < refetchPause {
		return
	}
	s.began, s.running = now, make(chan struct{})
	go func() {
		keys, err := s.fetch(context.Background())
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err = err; err == nil {
			s.known, s.good = keys, now
		}
		close(s.running)
		s.running = nil
	}()
}

// fetch fetches the keys from where the rule, or the issuer, says.
func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	uri := s.rule.JWKSURI
	if uri == "" {
		var document struct {
			Issuer string `json:"issuer"`
			URI    string `json:"jwks_uri"`
		}
		body, err := s.get(ctx, strings.TrimRight(s.rule.Issuer, "/")+"/.well-known/openid-configuration")
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(body, &document); err != nil || document.URI == "" || document.Issuer != s.rule.Issuer {
			return nil, fmt.Errorf("the answer of %s is no OpenID configuration of that issuer; write jwksUri", s.rule.Issuer)
		}
		uri = document.URI
	}
	body, err := s.get(ctx, uri)
	if err != nil {
		return nil, err
	}
	return parseKeys(body)
}

func (s *keySet) get(ctx context.Context, uri string) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
	if err != nil {
		return nil, err
	}
	body, err := fetch.Body(s.client, q, maxKeySet)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", uri, err)
	}
	return body, nil
}

// parseKeys returns the keys of a set that can check signatures.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("it is no set of keys (JWKS): %w", err)
	}
	if len(raw.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys, and the most is %d", len(raw.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, text := range raw.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(text, &k) == nil && k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") {
			keys = append(keys, k) // others are of kinds that no accepted token is signed with
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no public key for signatures")
	}
	return keys, nil
}
