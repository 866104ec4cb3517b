package agent

import (
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestCompliance: a policy of the operator restricts the TLS between two sidecars, and that to the control plane.
func TestCompliance(t *testing.T) {
	for policy, used := range map[string][]string{
		"fips-140-2": {`ssl\.versions\.TLSv1\.2$`, `ssl\.curves\.P-256$`, `ssl\.ciphers\.ECDHE-ECDSA-AES128-GCM-SHA256$`},
		"pqc":        {`ssl\.versions\.TLSv1\.3$`, `ssl\.curves\.X25519MLKEM768$`},
	} {
		t.Run(policy, func(t *testing.T) {
			b := newBed(t)
			b.TLSOnly()
			b.Env = []string{"COMPLIANCE_POLICY=" + policy}
			if _, err := b.Write("web.yaml", fmt.Sprintf(rotated, webHost, b.port, b.backend.port)); err != nil {
				t.Fatal(err)
			}
			b.serve()
			start := func(account string, node testbed.Node) *testbed.Agent {
				o := b.certified(account)
				o.Env = append(o.Env, b.Env...)
				return b.ready(o, node)
			}
			web := start("web", testbed.Node{Name: "web", IP: "127.1.0.2"})
			start("app", testbed.Node{})
			b.answers()
			for _, match := range used {
				if n, err := web.Sum(t.Context(), `^listener\..*`+match); err != nil || n == 0 {
					t.Errorf("%s: %d connections from the other sidecar, %v", match, n, err)
				}
			}
			if all, err := web.Sum(t.Context(), `^listener\..*ssl\.versions\.`); err != nil || all == 0 {
				t.Error(err)
			} else if n, err := web.Sum(t.Context(), `^listener\..*`+used[0]); err != nil || n != all {
				t.Errorf("%d of %d connections have the version of the policy: %v", n, all, err)
			}
		})
	}
}
