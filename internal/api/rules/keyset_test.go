package rules

import (
	"strings"
	"testing"

	security "istio.io/api/security/v1beta1"
)

// FuzzKeySet checks that a set of keys is judged without a panic, and that the reason quotes nothing of it.
func FuzzKeySet(f *testing.F) {
	f.Add(`{"keys":[{"kty":"oct","k":"secret-of-mine"}]}`)
	f.Add(`{"keys":[{"kty":"","k":"secret-of-mine"}]}`)
	f.Add(`{"keys":[null,{"kty":3}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		reason := CheckKeySet([]byte(text))
		if len(text) > 40 && strings.Contains(reason, text) {
			t.Errorf("the reason has the text: %s", reason)
		}
		if _, ok := parseKeySet([]byte(text)); !ok && reason == "" {
			t.Error("a text that is no set is taken for one")
		}
	})
}

// TestSymmetricKey: a key with which tokens are made is remarked where everybody reads it, without being quoted.
func TestSymmetricKey(t *testing.T) {
	for keys, want := range map[string]int{`{"keys":[{"kty":"RSA"},{"kty":"oct","k":"c2VjcmV0"}]}`: 1, `{"keys":[{"kty":"RSA"}]}`: 0} {
		findings := RequestAuthentication(&security.RequestAuthentication{JwtRules: []*security.JWTRule{{Issuer: "me", Jwks: keys}}}, About{})
		if len(findings) != want {
			t.Errorf("%s: %v", keys, findings)
		}
		for _, one := range findings {
			if !strings.Contains(one.Reason, "symmetric") || strings.Contains(one.Reason, "c2VjcmV0") {
				t.Errorf("%s: %v", keys, one)
			}
		}
	}
}
