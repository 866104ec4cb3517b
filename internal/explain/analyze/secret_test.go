package analyze_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

const secure = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {selector: {istio: front}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [web.example.com], tls: {mode: SIMPLE, credentialName: web-cert}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example.com], gateways: [front], http: [{directResponse: {status: 200}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: front, namespace: edge, labels: {istio: front}}
`

// TestCredentials: a Gateway has a problem if the files have Secrets of the namespace of its gateways, and not the one that it names. Certificates and
// the like make Secrets.
func TestCredentials(t *testing.T) {
	secret := func(kind, namespace, name, spec string) string {
		return "---\napiVersion: v1\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: " + namespace + "}\n" + spec
	}
	const problem = `secure.yaml:4: warning: Gateway shop/front: spec.servers[0].tls.credentialName: there is no Secret "web-cert" in namespace "edge"`
	for _, c := range []struct {
		name, text string
		found      bool
	}{
		{"no Secrets at all", "", false},
		{"one of another namespace", secret("Secret", "shop", "other", ""), false},
		{"another one", secret("Secret", "edge", "web-crt", ""), true},
		{"the one", secret("Secret", "edge", "web-crt", "") + secret("Secret", "edge", "web-cert", ""), false},
		{"a sealed one", secret("Secret", "edge", "x", "") + secret("SealedSecret", "edge", "web-cert", ""), false},
		{"a certificate", secret("Certificate", "edge", "x", "spec: {secretName: web-cert}\n"), false},
		{"an external one", secret("ExternalSecret", "edge", "x", "spec: {target: {name: web-cert}}\n"), false},
		{"an external one of its own name", secret("ExternalSecret", "edge", "web-cert", ""), false},
		{"a certificate of another name", secret("Certificate", "edge", "web-cert", "spec: {secretName: x}\n"), true},
	} {
		a := analyze.New()
		a.File("secure.yaml", []byte(secure+c.text))
		got := texts(a.AllProblems("cluster.local"))
		if found := len(got) == 1 && strings.HasPrefix(got[0], problem); found != c.found || !found && len(got) > 0 {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}
