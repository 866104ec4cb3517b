package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/pilotmesh/pilot/internal/run/statefile"
)

func TestParse(t *testing.T) {
	good := Identity{"cluster.local", "shop", "reviews"}
	if got, err := Parse(good.String()); err != nil || got != good {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{
		"", "spiffe://", "spiffe://td/ns/a/sa/", "spiffe://td/ns//sa/b", "spiffe:///ns/a/sa/b", "spiffe://td/ns/a/sa/b/", "spiffe://td/ns/a/sa/b/c",
		"spiffe://td/ns/../sa/b", "spiffe://td/sa/a/ns/b", "SPIFFE://td/ns/a/sa/b", "spiffe://td/ns/a/sa/b\x00", "spiffe://td/ns/a/sa/b?x=1",
		"spiffe://td/ns/a%2fb/sa/c", "spiffe://td:1/ns/a/sa/b", "spiffe://user@td/ns/a/sa/b", "spiffe://TD/ns/a/sa/b", "https://td/ns/a/sa/b",
		"spiffe://td/ns/" + strings.Repeat("a", 300) + "/sa/b",
	} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("spiffe://cluster.local/ns/shop/sa/reviews")
	f.Add("spiffe://td/ns/a/sa/b\x00")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := Parse(text); err == nil && id.String() != text {
			t.Errorf("%q and %q are one identity", text, id)
		}
	})
}

const mesh = "cluster.local"

func domain() string { return mesh }

// forge signs claims, or pretends to.
type forge struct {
	algorithm jose.SignatureAlgorithm
	key       any
	kid       string
}

func (f forge) sign(t *testing.T, claims any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: f.algorithm, Key: jose.JSONWebKey{Key: f.key, KeyID: f.kid}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// unsigned makes a token with any header and signature.
func unsigned(header string, claims any, signature string) string {
	body, _ := json.Marshal(claims)
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(header)) + "." + enc(body) + "." + signature
}

// attack is a change of a good token that must be refused.
type attack struct {
	name   string
	token  func(good jwt.Claims, f forge) string
	reason string
}

func attacks(t *testing.T, public crypto.PublicKey) []attack {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(change func(*jwt.Claims)) func(jwt.Claims, forge) string {
		return func(c jwt.Claims, f forge) string {
			change(&c)
			return f.sign(t, c)
		}
	}
	now := time.Now()
	return []attack{
		{"other audience", claim(func(c *jwt.Claims) { c.Audience = jwt.Audience{"vault"} }), "not for"},
		{"no audience", claim(func(c *jwt.Claims) { c.Audience = nil }), "not for"},
		{"expired", claim(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(now.Add(-time.Second)) }), "expired"},
		{"never expires", claim(func(c *jwt.Claims) { c.Expiry = nil }), "never expires"},
		{"not yet valid", claim(func(c *jwt.Claims) { c.NotBefore = jwt.NewNumericDate(now.Add(time.Minute)) }), "not valid before"},
		{"issued in the future", claim(func(c *jwt.Claims) { c.IssuedAt = jwt.NewNumericDate(now.Add(time.Minute)) }), "later than now"},
		{"another issuer", claim(func(c *jwt.Claims) { c.Issuer = "somebody" }), "can be checked here"},
		{"subject that is no account", claim(func(c *jwt.Claims) { c.Subject = "admin" }), "no service account"},
		{"subject with a slash", claim(func(c *jwt.Claims) { c.Subject = Subject("shop/../x", "a") }), "not allowed"},
		{"subject with a colon", claim(func(c *jwt.Claims) { c.Subject = Subject("shop", "a:b") }), "not allowed"},
		{"empty namespace", claim(func(c *jwt.Claims) { c.Subject = Subject("", "a") }), "empty"},
		{"another key", func(c jwt.Claims, f forge) string { return forge{jose.ES256, other, f.kid}.sign(t, c) }, "signed"},
		{"another key without name", func(c jwt.Claims, _ forge) string { return forge{jose.ES256, other, ""}.sign(t, c) }, "signed"},
		{"alg none", func(c jwt.Claims, _ forge) string { return unsigned(`{"alg":"none"}`, c, "") }, "no signed token"},
		{"alg None", func(c jwt.Claims, _ forge) string { return unsigned(`{"alg":"None","typ":"JWT"}`, c, "AAAA") }, "no signed token"},
		{"the public key as a secret (DER)", func(c jwt.Claims, f forge) string { return forge{jose.HS256, der, f.kid}.sign(t, c) }, "no signed token"},
		{"the public key as a secret (name)", func(c jwt.Claims, f forge) string {
			return forge{jose.HS256, []byte(strings.Repeat("k", 32)), f.kid}.sign(t, c)
		}, "no signed token"},
		{"signature cut off", func(c jwt.Claims, f forge) string {
			s := f.sign(t, c)
			return s[:strings.LastIndex(s, ".")+1]
		}, "signed"},
		{"claims exchanged", func(c jwt.Claims, f forge) string {
			good := strings.Split(f.sign(t, c), ".")
			c.Subject = Subject("kube-system", "admin")
			bad := strings.Split(f.sign(t, c), ".")
			return good[0] + "." + bad[1] + "." + good[2]
		}, "signed"},
		{"encrypted", func(jwt.Claims, forge) string { return "a.b.c.d.e" }, "no signed token"},
		{"no token", func(jwt.Claims, forge) string { return "password" }, "no signed token"},
		{"10 MB", func(c jwt.Claims, f forge) string { return f.sign(t, c) + strings.Repeat("A", 10<<20) }, "bytes"},
		{"10 MB of dots", func(jwt.Claims, forge) string { return strings.Repeat(".", 10<<20) }, "bytes"},
		{"10 MB of claims", func(c jwt.Claims, f forge) string {
			c.ID = strings.Repeat("A", 10<<20)
			return f.sign(t, c)
		}, "bytes"},
	}
}

// TestAttacks changes good tokens of each kind in each way: all are refused, with a reason that has nothing of the token.
func TestAttacks(t *testing.T) {
	dir := statefile.Dir(t.TempDir())
	local, err := LoadLocalKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &rsaKey.PublicKey, KeyID: "one", Algorithm: "RS256"}}})
	if err != nil {
		t.Fatal(err)
	}
	kinds := []struct {
		name    string
		issuer  Issuer
		forge   forge
		public  crypto.PublicKey
		subject string
	}{
		{"local", LocalTokens(dir, []string{Audience}, domain, time.Now), forge{jose.ES256, local.key, local.id}, &local.key.PublicKey, localIssuer},
		{"OIDC", Rule{Issuer: "https://issuer", JWKS: string(set)}.Accept([]string{Audience}, nil, domain, time.Now), forge{jose.RS256, rsaKey, "one"}, &rsaKey.PublicKey, "https://issuer"},
	}
	for _, k := range kinds {
		good := jwt.Claims{
			Issuer: k.issuer.Name, Subject: Subject("shop", "reviews"), Audience: jwt.Audience{Audience},
			Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)), IssuedAt: jwt.NewNumericDate(time.Now()),
		}
		callers := Any{Certificates{TrustDomains: func() []string { return []string{mesh} }, Now: time.Now}, k.issuer}
		who, err := callers.Authenticate(t.Context(), Credentials{Token: k.forge.sign(t, good)})
		if want := (Identity{mesh, "shop", "reviews"}); err != nil || who.Identity != want || who.Expires.Unix() != good.Expiry.Time().Unix() {
			t.Fatalf("%s: the good token is of %v: %v", k.name, who, err)
		}
		for _, a := range attacks(t, k.public) {
			t.Run(k.name+"/"+a.name, func(t *testing.T) {
				token := a.token(good, k.forge)
				who, err := callers.Authenticate(t.Context(), Credentials{Token: token})
				if err == nil {
					t.Fatalf("it is accepted as %v", who.Identity)
				}
				if !strings.Contains(err.Error(), a.reason) {
					t.Errorf("the reason is %q, want %q", err, a.reason)
				}
				if len(err.Error()) > 1000 {
					t.Errorf("the reason has %d bytes", len(err.Error()))
				}
				for part := range strings.SplitSeq(token, ".") {
					if len(part) > 20 && strings.Contains(fmt.Sprintf("%v %+v %#v", err, Credentials{Token: token}, Credentials{Token: token}), part[:20]) {
						t.Errorf("a part of the token is in %q", err)
					}
				}
			})
		}
	}
}

func certificate(t *testing.T, until time.Duration, uris ...string) *x509.Certificate {
	c := &x509.Certificate{NotAfter: time.Now().Add(until)}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, parsed)
	}
	return c
}

func TestCertificates(t *testing.T) {
	callers := Any{Certificates{TrustDomains: func() []string { return []string{"new.test", "old.test"} }, Now: time.Now}}
	const good = "spiffe://old.test/ns/shop/sa/reviews"
	for _, c := range []struct {
		name string
		cert *x509.Certificate
		want string
	}{
		{"of an alias", certificate(t, time.Hour, good), good},
		{"of another trust domain", certificate(t, time.Hour, "spiffe://evil.test/ns/shop/sa/reviews"), "neither the mesh's own"},
		{"of two identities", certificate(t, time.Hour, good, "spiffe://old.test/ns/shop/sa/admin"), "names 2 identities"},
		{"of none", certificate(t, time.Hour), "names 0 identities"},
		{"of something else", certificate(t, time.Hour, "spiffe://old.test/vm/7"), "not the identity of a service account"},
		{"expired on an open connection", certificate(t, -time.Second, good), "expired"},
		{"none at all", nil, "neither a client certificate nor a token"},
	} {
		who, err := callers.Authenticate(t.Context(), Credentials{Certificate: c.cert})
		got := who.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBind(t *testing.T) {
	c := Caller{Identity: Identity{mesh, "shop", "reviews"}, Means: "local token"}
	for _, one := range []struct {
		namespace, account string
		ok                 bool
	}{{"shop", "reviews", true}, {"shop", "", true}, {"shop", "admin", false}, {"bank", "reviews", false}, {"", "", false}} {
		if err := c.Bind(one.namespace, one.account); (err == nil) != one.ok {
			t.Errorf("%s/%s: %v", one.namespace, one.account, err)
		}
	}
}

// TestLocalKey: two programs that begin at the same time have one key; a key that others can read is refused.
func TestLocalKey(t *testing.T) {
	dir := statefile.Dir(t.TempDir())
	keys := make(chan *LocalKey, 8)
	for range cap(keys) {
		go func() {
			k, err := LoadLocalKey(dir)
			if err != nil {
				t.Error(err)
			}
			keys <- k
		}()
	}
	first := <-keys
	for range cap(keys) - 1 {
		if k := <-keys; k == nil || first == nil || k.id != first.id {
			t.Fatal("two keys were made")
		}
	}
	token, err := first.Issue("shop", "reviews", []string{Audience}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issuer := LocalTokens(dir, []string{Audience}, domain, time.Now)
	if _, err := issuer.Authenticate(t.Context(), Credentials{Token: token}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir.Path(tokenKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.Authenticate(t.Context(), Credentials{Token: token}); err == nil || !strings.Contains(err.Error(), "other users") {
		t.Errorf("a key that others can read: %v", err)
	}
	if err := os.Remove(dir.Path(tokenKeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadLocalKey(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.Authenticate(t.Context(), Credentials{Token: token}); err == nil || !strings.Contains(err.Error(), "pilotctl token create") {
		t.Errorf("a token of the former key: %v", err)
	}
}

// TestDiscovery fetches the keys of an issuer when they are needed, bounded, and keeps the last good ones.
func TestDiscovery(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var fetched atomic.Int32
	var broken atomic.Bool
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, server.URL, server.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		if broken.Load() {
			_, _ = w.Write([]byte(strings.Repeat(" ", maxKeySet+2)))
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k"}}})
	})
	var now atomic.Int64
	now.Store(time.Now().Unix())
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	issuer := Rule{Issuer: server.URL}.Accept([]string{Audience}, server.Client(), domain, clock)
	claims := jwt.Claims{Issuer: server.URL, Subject: Subject("shop", "a"), Audience: jwt.Audience{Audience}, Expiry: jwt.NewNumericDate(clock().Add(2 * time.Hour))}
	good := Credentials{Token: forge{jose.ES256, key, "k"}.sign(t, claims)}
	bad := Credentials{Token: forge{jose.ES256, key, "unknown"}.sign(t, claims)}
	for range 20 {
		if _, err := issuer.Authenticate(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		if _, err := issuer.Authenticate(t.Context(), bad); err == nil {
			t.Fatal("a key of another name is accepted")
		}
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("%d fetches for one set of keys", n)
	}
	broken.Store(true)
	now.Add(int64((keysFor + time.Minute) / time.Second))
	for range 20 {
		if _, err := issuer.Authenticate(t.Context(), good); err != nil {
			t.Fatalf("the last good keys are gone: %v", err)
		}
	}
	eventually(t, "old keys are fetched again, once", func() bool { return fetched.Load() == 2 })
}

// reviewer is an API server that knows some tokens.
type reviewer struct {
	asked atomic.Int32
	users map[string]string
	err   error
}

func (r *reviewer) Review(_ context.Context, token string, _ []string) (Review, error) {
	r.asked.Add(1)
	if user := r.users[token]; user != "" {
		return Review{User: user}, r.err
	}
	return Review{Refusal: "unknown"}, r.err
}

func TestReviewed(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(subject string) string {
		return forge{jose.ES256, key, ""}.sign(t, jwt.Claims{Issuer: "cluster", Subject: subject, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))})
	}
	token, node := sign(Subject("shop", "a")), sign("system:node:n1")
	r := &reviewer{users: map[string]string{token: Subject("shop", "a"), node: "system:node:n1"}}
	now := time.Now()
	a := NewReviewed(r, []string{Audience}, domain, func() time.Time { return now })
	for range 5 {
		who, err := a.Authenticate(t.Context(), Credentials{Token: token})
		if err != nil || who.Identity != (Identity{mesh, "shop", "a"}) {
			t.Fatal(who, err)
		}
	}
	if n := r.asked.Load(); n != 1 {
		t.Errorf("asked %d times for one token", n)
	}
	delete(r.users, token) // it was revoked
	now = now.Add(reviewedFor + time.Second)
	if _, err := a.Authenticate(t.Context(), Credentials{Token: token}); err == nil {
		t.Error("a revoked token is accepted for longer than it may")
	}
	if _, err := a.Authenticate(t.Context(), Credentials{Token: node}); err == nil || !strings.Contains(err.Error(), "no service account") {
		t.Errorf("a node is %v", err)
	}
	for i := range maxReviews + 10 {
		_, _ = a.Authenticate(t.Context(), Credentials{Token: sign(Subject("shop", fmt.Sprint(i)))})
	}
	if n := len(a.answers); n > maxReviews {
		t.Errorf("%d answers are remembered", n)
	}
	r.err = errors.New("connection refused")
	if _, err := a.Authenticate(t.Context(), Credentials{Token: sign(Subject("shop", "b"))}); err == nil || !strings.Contains(err.Error(), "cannot be asked") {
		t.Errorf("without an API server: %v", err)
	}
}
