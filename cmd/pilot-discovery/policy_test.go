package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const denyAdmin = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny-admin, namespace: shop}
spec:
  action: DENY
  rules:
  - to: [{operation: {paths: ["/admin*"]%s}}]
`

// verdict waits until a request is allowed or denied.
func (c *controlPlane) verdict(path, want string) {
	c.t.Helper()
	c.until("/debug/can-i?from=shop/web&to=reviews.shop:80&method=GET&path="+path, func(_ int, body string) bool {
		return strings.Contains(body, fmt.Sprintf(`"verdict":"%s"`, want))
	})
}

// TestRefusedPolicyAfterRestart: a request that was denied stays denied when the last edit of the policy is refused and the control plane is
// started again, and requests that the policy allowed stay allowed. Without the state folder, all requests are denied, and a Problem says why.
func TestRefusedPolicyAfterRestart(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	c := startIn(t, dir, "--stateDir="+state)
	c.write("policy.yaml", fmt.Sprintf(denyAdmin, ""))
	c.verdict("/admin/x", "deny")
	c.write("policy.yaml", fmt.Sprintf(denyAdmin, `, ports: ["99999"]`))
	c.until("/debug/problemz", func(_ int, body string) bool { return strings.Contains(body, "99999") })
	c.verdict("/admin/x", "deny")
	c.stop()

	c = startIn(t, dir, "--stateDir="+state)
	c.ready()
	c.verdict("/admin/x", "deny")
	c.verdict("/", "allow")
	c.stop()

	c = startIn(t, dir, "--stateDir="+t.TempDir())
	c.ready()
	c.verdict("/", "deny")
	c.until("/debug/problemz", func(_ int, body string) bool { return strings.Contains(body, "no earlier version is known") })
	c.write("policy.yaml", fmt.Sprintf(denyAdmin, ""))
	c.verdict("/", "allow")
	c.stop()
}

// TestRefusedPolicyIsIgnored: a setting of the mesh has refused policies without a good version ignored.
func TestRefusedPolicyIsIgnored(t *testing.T) {
	t.Setenv("PILOT_REFUSED_POLICIES", "ignore")
	dir := t.TempDir()
	c := startIn(t, dir, "--stateDir="+t.TempDir())
	c.write("policy.yaml", fmt.Sprintf(denyAdmin, `, ports: ["99999"]`))
	c.until("/debug/problemz", func(code int, body string) bool { return code == http.StatusOK && strings.Contains(body, "99999") })
	c.verdict("/admin/x", "allow")
	c.stop()
}
