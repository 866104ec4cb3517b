package authz_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const issuers = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: keys, namespace: a}
spec:
  hosts: [keys.example]
  ports: [{number: 443, name: tls, protocol: TLS}]
  resolution: DNS
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: a}
spec:
  jwtRules:
  - {issuer: seen, jwksUri: "https://keys.example/x"}
  - {issuer: unseen, jwksUri: "https://elsewhere.example:8443/y", timeout: 2s}
`

// TestWhoFetchesKeys: Envoy fetches keys only if that is wanted and the service that has them is one that the workload sees.
func TestWhoFetchesKeys(t *testing.T) {
	for _, c := range []struct {
		fetcher              mesh.KeyFetcher
		remote, local, wants int
		problem              string
	}{
		{mesh.ControlPlaneFetches, 0, 2, 2, ""},
		{mesh.ProxyMayFetch, 1, 1, 2, ""},
		{mesh.ProxyFetches, 1, 1, 0, "spec.jwtRules[1].jwksUri: proxies cannot fetch the keys of this issuer"},
	} {
		w := meshtest.NewWith(t, meshtest.Options{KeyFetcher: c.fetcher})
		w.Load(issuers)
		s := w.State(w.Connect(meshtest.Node(t, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", "{}")))
		got := meshtest.Print(t, s, func(_ resource.Type, name string) bool { return name == "virtualInbound" })
		chains := strings.Count(got, "jwt_authn.v3.JwtAuthentication")
		if remote, local := strings.Count(got, "remote_jwks:"), strings.Count(got, "local_jwks:"); chains == 0 || remote != c.remote*chains || local != c.local*chains {
			t.Errorf("%d: %d chains, and of the key sets Envoy fetches %d and has %d", c.fetcher, chains, remote, local)
		}
		if c.remote > 0 && !strings.Contains(got, "cluster: outbound|443||keys.example") {
			t.Errorf("%d: the keys come from elsewhere:\n%s", c.fetcher, got)
		}
		if wants := w.Tables.Security.WantedKeys.Peek(struct{}{}).Len(); wants != c.wants {
			t.Errorf("%d: the control plane fetches %d key sets, want %d", c.fetcher, wants, c.wants)
		}
		told := strings.Join(w.Problems(), "\n")
		if (c.problem == "") == strings.Contains(told, "proxies cannot fetch") || !strings.Contains(told, c.problem) {
			t.Errorf("%d: problems:\n%s", c.fetcher, told)
		}
	}
}
