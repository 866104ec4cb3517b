package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatal("it never happened that ", what)
		}
	}
}

// server is an API server that answers a question when the test says so. It accepts the tokens of good.
type server struct {
	mu      sync.Mutex
	asked   []string
	answers chan struct{}
	good    map[string]string
}

func (s *server) Review(ctx context.Context, token string, _ []string) (Review, error) {
	s.mu.Lock()
	s.asked = append(s.asked, token)
	s.mu.Unlock()
	select {
	case <-s.answers:
	case <-ctx.Done():
		return Review{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if user := s.good[token]; user != "" {
		return Review{User: user}, nil
	}
	return Review{Refusal: "unknown"}, nil
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// crowd is an authenticator before such an API server, with tokens that may be signed by anybody.
type crowd struct {
	t *testing.T
	*Reviewed
	server *server
	key    *ecdsa.PrivateKey
	now    atomic.Int64
	end    context.CancelFunc
	ctx    context.Context
	left   sync.WaitGroup
}

func newCrowd(t *testing.T) *crowd {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, key: key, server: &server{answers: make(chan struct{}), good: map[string]string{}}}
	c.ctx, c.end = context.WithCancel(t.Context())
	c.now.Store(time.Now().UnixNano())
	c.Reviewed = NewReviewed(c.server, []string{Audience}, domain, func() time.Time { return time.Unix(0, c.now.Load()) })
	t.Cleanup(func() {
		c.end()
		c.left.Wait()
		close(c.server.answers)
		eventually(t, "nothing is asked any more", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.asking == 0 && c.waiting.total == 0
		})
	})
	return c
}

func (c *crowd) token(account string, change func(*jwt.Claims)) string {
	claims := jwt.Claims{Issuer: "https://kubernetes", Subject: Subject("shop", account), Audience: jwt.Audience{Audience}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}
	if change != nil {
		change(&claims)
	}
	return forge{jose.ES256, c.key, ""}.sign(c.t, claims)
}

// come has a caller come, and returns where the result will be.
func (c *crowd) come(ctx context.Context, from, token string) <-chan error {
	result := make(chan error, 1)
	c.left.Go(func() {
		_, err := c.Authenticate(ctx, Credentials{Token: token, From: from})
		result <- err
	})
	return result
}

// waits waits until some questions wait.
func (c *crowd) waits(n int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprint(n, " questions wait"), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting.total == n
	})
}

// TestImpossibleTokens: a token that its own claims make impossible is refused, and the API server is not asked.
func TestImpossibleTokens(t *testing.T) {
	c := newCrowd(t)
	for reason, change := range map[string]func(*jwt.Claims){
		"not for":            func(c *jwt.Claims) { c.Audience = jwt.Audience{"vault"} },
		"has expired":        func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Minute)) },
		"not valid before":   func(c *jwt.Claims) { c.NotBefore = jwt.NewNumericDate(time.Now().Add(time.Minute)) },
		"later than now":     func(c *jwt.Claims) { c.IssuedAt = jwt.NewNumericDate(time.Now().Add(time.Minute)) },
		"no service account": func(c *jwt.Claims) { c.Subject = "system:admin" },
	} {
		if _, err := c.Authenticate(t.Context(), Credentials{Token: c.token("a", change)}); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if n := c.server.count(); n > 0 {
		t.Errorf("the API server was asked %d times", n)
	}
}

// TestInventedTokensWaitInTheirLine: one address sends invented tokens without end. It gets its share of the waiting
// places, a token from another address is the next one, and so is one of the same address that was good before.
func TestInventedTokensWaitInTheirLine(t *testing.T) {
	c := newCrowd(t)
	old := c.token("old", nil)
	c.server.good[old] = Subject("shop", "old")
	first := c.come(t.Context(), "10.0.0.66", old)
	c.server.answers <- struct{}{}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	c.now.Add(int64(reviewedFor + time.Second)) // it is asked about again
	for i := range maxReviewing + maxWaitingFrom {
		c.come(c.ctx, "10.0.0.66", c.token(fmt.Sprint("x", i), nil))
	}
	c.waits(maxWaitingFrom)
	if err := <-c.come(t.Context(), "10.0.0.66", c.token("one-more", nil)); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	again := c.come(t.Context(), "10.0.0.66", old)
	eventually(t, "the token that was good waits", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting.of["10.0.0.66"].list[0].token == old
	})
	c.waits(maxWaitingFrom) // an invented one gave way
	good := c.token("good", nil)
	c.server.good[good] = Subject("shop", "good")
	other := c.come(t.Context(), "10.0.0.7", good)
	c.waits(maxWaitingFrom + 1)
	before := c.server.count()
	for range 2 {
		c.server.answers <- struct{}{}
	}
	eventually(t, "two more are asked about", func() bool { return c.server.count() == before+2 })
	c.server.mu.Lock()
	next := c.server.asked[before:]
	c.server.mu.Unlock()
	if !strings.Contains(strings.Join(next, " "), good) || !strings.Contains(strings.Join(next, " "), old) {
		t.Error("invented tokens are asked about before those of others")
	}
	for done := 0; done < 2; {
		select {
		case c.server.answers <- struct{}{}:
		case err := <-other:
			other, done = nil, done+1
			if err != nil {
				t.Error("another address: ", err)
			}
		case err := <-again:
			again, done = nil, done+1
			if err != nil {
				t.Error("a token that was good: ", err)
			}
		}
	}
}

// TestSharesOfWhatWaits: if all places are taken, the address with most gives one to an address with fewer. Hosts of one IPv6 network are
// one address.
func TestSharesOfWhatWaits(t *testing.T) {
	var l lines
	for i := range maxWaiting {
		if gone, ok := l.add(&answer{from: fmt.Sprint(i % (maxWaiting / maxWaitingFrom))}); !ok || gone != nil {
			t.Fatalf("place %d: %v", i, gone)
		}
	}
	for i := range maxWaitingFrom - 100 {
		if gone, ok := l.add(&answer{from: "new"}); !ok || gone == nil || gone.from == "new" || l.total != maxWaiting {
			t.Fatalf("place %d of another one: %v %v, %d wait", i, gone, ok, l.total)
		}
	}
	seen := map[string]bool{}
	for range len(l.order) {
		seen[l.next().from] = true
	}
	if len(seen) != maxWaiting/maxWaitingFrom+1 {
		t.Errorf("a round serves %d addresses", len(seen))
	}
	for range l.total {
		l.next()
	}
	if l.next() != nil || len(l.of) > 0 || len(l.order) > 0 || l.total != 0 {
		t.Error("something is left")
	}
	for from, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8::1": "2001:db8::/64", "2001:db8::ffff:0:0:9": "2001:db8::/64", "pipe": "pipe", "": "",
	} {
		if got := Network(from); got != want {
			t.Errorf("%s is %s, want %s", from, got, want)
		}
	}
}

// TestCallersLeave: a caller that goes away fails no other one with the same token, whether the API server has been
// asked or not. A question that no caller waits for any more takes no place. How many wait for one token is bounded.
func TestCallersLeave(t *testing.T) {
	c := newCrowd(t)
	asked := c.token("asked", nil)
	c.server.good[asked] = Subject("shop", "asked")
	first, leave := context.WithCancel(t.Context())
	gone := c.come(first, "10.0.0.1", asked)
	eventually(t, "the API server is asked", func() bool { return c.server.count() == 1 })
	stays := c.come(t.Context(), "10.0.0.1", asked)
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who went away: %v", err)
	}
	c.server.answers <- struct{}{}
	if err := <-stays; err != nil {
		t.Errorf("who stayed: %v", err)
	}

	for i := range maxReviewing {
		c.come(c.ctx, "10.0.0.2", c.token(fmt.Sprint("x", i), nil))
	}
	eventually(t, "the API server has all it takes", func() bool { return c.server.count() == 1+maxReviewing })
	second, leave := context.WithCancel(t.Context())
	token := c.token("waiting", nil)
	gone = c.come(second, "10.0.0.3", token)
	c.come(c.ctx, "10.0.0.3", token)
	c.waits(1)
	alone, end := context.WithCancel(t.Context())
	last := c.come(alone, "10.0.0.3", c.token("alone", nil))
	c.waits(2)
	end()
	<-last //nolint:errcheck // the caller has left
	c.waits(1)
	leave()
	<-gone //nolint:errcheck // the caller has left
	c.waits(1)
	for range maxSharing - 1 {
		c.come(c.ctx, "10.0.0.3", token)
	}
	eventually(t, "the callers of one token are all it may have", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting.of["10.0.0.3"].list[0].callers == maxSharing
	})
	if err := <-c.come(c.ctx, "10.0.0.4", token); !errors.Is(err, ErrBusy) {
		t.Errorf("one more caller: %v", err)
	}
}

// hanging is an issuer whose keys are k, and which answers when the test says so once it is slow.
type hanging struct {
	Issuer
	fetches atomic.Int32
	slow    atomic.Bool
	release chan []byte
	now     atomic.Int64
}

func newHanging(t *testing.T, keys []byte) *hanging {
	h := &hanging{release: make(chan []byte)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.fetches.Add(1)
		text := keys
		if h.slow.Load() {
			select {
			case text = <-h.release:
			case <-r.Context().Done():
			}
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(s.Close)
	h.now.Store(time.Now().UnixNano())
	h.Issuer = Rule{Issuer: "https://idp.example", JWKSURI: s.URL}.Accept([]string{Audience}, s.Client(), domain, func() time.Time { return time.Unix(0, h.now.Load()) })
	return h
}

// signer is a key of the issuer with the name that tokens give it.
func signer(t *testing.T, kid string) (public jose.JSONWebKey, token string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: &key.PublicKey, KeyID: kid}, forge{jose.ES256, key, kid}.sign(t, jwt.Claims{
		Issuer: "https://idp.example", Subject: Subject("shop", "web"), Audience: jwt.Audience{Audience}, Expiry: jwt.NewNumericDate(time.Now().Add(10 * time.Hour)),
	})
}

func set(t *testing.T, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestUnknownKey: an issuer hangs. A token whose key is known does not wait for it, whether others come with unknown keys or the keys are
// old; how many tokens with unknown keys wait is bounded for each address.
func TestUnknownKey(t *testing.T) {
	k, good := signer(t, "k")
	o, next := signer(t, "o")
	h := newHanging(t, set(t, k))
	if _, err := h.Authenticate(t.Context(), Credentials{Token: good}); err != nil {
		t.Fatal(err)
	}
	h.slow.Store(true)
	h.now.Add(int64(keysFor + time.Minute))
	if _, err := h.Authenticate(t.Context(), Credentials{Token: good}); err != nil { // it would hang here
		t.Errorf("old keys: %v", err)
	}
	eventually(t, "the keys are fetched", func() bool { return h.fetches.Load() == 2 })
	results := make(chan error, maxForKeysFrom+1)
	for range cap(results) {
		go func() {
			_, err := h.Authenticate(t.Context(), Credentials{Token: next, From: "10.0.0.66"})
			results <- err
		}()
	}
	if err := <-results; !errors.Is(err, ErrBusy) {
		t.Errorf("one more than may wait: %v", err)
	}
	if _, err := h.Authenticate(t.Context(), Credentials{Token: good, From: "10.0.0.66"}); err != nil {
		t.Errorf("a token whose key is known: %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := h.Authenticate(left, Credentials{Token: next, From: "10.0.0.7"}); !errors.Is(err, context.Canceled) {
		t.Errorf("another address waits, and goes away: %v", err)
	}
	h.release <- set(t, k, o)
	for range maxForKeysFrom {
		if err := <-results; err != nil {
			t.Fatalf("the new key is not taken: %v", err)
		}
	}
	if n := h.fetches.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
}
