package analyze

import (
	"fmt"
	"strings"
	"testing"
)

// shop is the text of n services in ten namespaces, each with routes and a rule. Each tenth route leads to a host that does not exist, and each tenth
// rule has a subset without endpoints.
func shop(n int) []byte {
	var b strings.Builder
	for i := range n {
		destination, version := fmt.Sprintf("web-%d.example.com", i), "v1"
		switch i % 10 {
		case 3:
			destination = fmt.Sprintf("gone-%d.example.com", i)
		case 4:
			version = "v2"
		}
		fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web-%[1]d, namespace: ns-%[2]d}
spec: {hosts: [web-%[1]d.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web-%[1]d, namespace: ns-%[2]d}
spec: {hosts: [web-%[1]d.example.com], http: [{route: [{destination: {host: %[3]s}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web-%[1]d, namespace: ns-%[2]d}
spec: {host: web-%[1]d.example.com, subsets: [{name: only, labels: {version: %[4]s}}]}
---
`, i, i%10, destination, version)
	}
	return []byte(b.String())
}

// analysis returns the number of cells that run to analyse n services with their rules, and the number of problems.
func analysis(t *testing.T, n int) (cells, problems int) {
	t.Helper()
	a := New()
	a.File("shop.yaml", shop(n))
	m, done := a.evaluate("cluster.local")
	defer done()
	for _, ran := range m.Graph.Cost() {
		cells += ran
	}
	return cells, m.Problems.Len()
}

// TestCost: the cells that run for an analysis grow with the number of objects, and no faster.
func TestCost(t *testing.T) {
	small, few := analysis(t, 200)
	large, many := analysis(t, 400)
	if few != 40 || many != 80 {
		t.Errorf("%d and %d problems, want 40 and 80", few, many)
	}
	if small < 600 || large > 2*small {
		t.Errorf("%d cells for 600 objects, %d for 1,200: want at least one for each object, and at most twice as many", small, large)
	}
}
