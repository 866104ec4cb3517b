package analyze_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/explain/analyze"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
)

const admin = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: admin, namespace: shop}
spec: {rules: [{from: [{source: {namespaces: [ops]}}]}, {expression: x}]}
`

const strict = `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {mtls: {mode: STRICTEST}}
`

// TestRefusedPolicies: a refused access policy denies, as it would in a control plane without an earlier version, and a problem says so.
func TestRefusedPolicies(t *testing.T) {
	const where = "web.shop.svc.mesh.local:80"
	for _, c := range []struct {
		name, text string
		request    described.Request
		want       string
	}{
		{"no policy", "", described.Request{From: "ops/a", To: where}, "allow"},
		{"an unknown field", admin, described.Request{From: "ops/a", To: where}, "deny"},
		{"a good policy", strings.Replace(admin, ", {expression: x}", "", 1), described.Request{From: "ops/a", To: where, MutualTLS: true}, "allow"},
		{"mutual TLS", strict, described.Request{From: "ops/a", To: where, MutualTLS: true}, "allow"},
		{"plain text", strict, described.Request{Address: "10.9.9.9", To: where, Plaintext: true}, "deny"},
	} {
		a := analyze.New()
		a.File("service.yaml", []byte(service))
		a.File("policy.yaml", []byte(c.text))
		c.request.Method, c.request.Path = "GET", "/"
		got, err := a.Access("mesh.local", c.request)
		if err != nil || string(got.Verdict) != c.want {
			t.Errorf("%s: %+v, %v, want %s", c.name, got, err, c.want)
		}
		refused := c.text == admin || c.text == strict
		if told := strings.Contains(strings.Join(texts(a.Problems()), "\n"), "no earlier version is known"); told != refused {
			t.Errorf("%s: %q", c.name, texts(a.Problems()))
		}
	}
}
