package problem_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestLimits: a Sidecar with more imports of namespaces than are used has one problem, and one with as many as are used has none.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		imports, problems int
	}{{59, 0}, {60, 1}} {
		w := meshtest.New(t)
		var config strings.Builder
		var hosts []string
		for i := range c.imports {
			fmt.Fprintf(&config, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: n%d}
spec: {hosts: [web-%d.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}
---
`, i, i)
			hosts = append(hosts, fmt.Sprintf(`"n%d/*"`, i))
		}
		w.Load(config.String() + fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: wide, namespace: shop}\nspec: {egress: [{hosts: [%s]}]}\n", strings.Join(hosts, ", ")))
		found := w.Problems()
		if len(found) != c.problems || c.problems > 0 && !strings.Contains(found[0], "only the first 59 imports") {
			t.Errorf("%d imports: got %q, want %d problems", c.imports, found, c.problems)
		}
	}
}
