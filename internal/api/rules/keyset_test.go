package rules

import (
	"strings"
	"testing"

	security "istio.io/api/security/v1beta1"
)

// TestSymmetricKey: a key with which tokens are made is remarked where everybody reads it, without being quoted.
func TestSymmetricKey(t *testing.T) {
	for keys, want := range map[string]int{`{"keys":[{"kty":"RSA","n":"AQ","e":"AQAB"},{"kty":"oct","k":"c2VjcmV0"}]}`: 1, `{"keys":[{"kty":"RSA","n":"AQ","e":"AQAB"}]}`: 0} {
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
