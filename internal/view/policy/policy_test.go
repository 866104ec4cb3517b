package policy_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/policy"
)

// TestTargets: a policy with targets is for the workloads in its namespace whose label names one of them, and for no workload if it has other targets
// only. The label is like any other for policies with a selector.
func TestTargets(t *testing.T) {
	w := meshtest.New(t)
	w.Apply(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: one, namespace: edge}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}, {group: gateway.networking.k8s.io, kind: Gateway, name: h}], rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: edge}
spec: {targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: g}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: service, namespace: edge}
spec: {targetRefs: [{kind: Service, name: g}], rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: root, namespace: istio-system}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}], rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: labelled, namespace: istio-system}
spec: {selector: {matchLabels: {gateway.networking.k8s.io/gateway-name: g}}, rules: [{}]}
`)
	for _, c := range []struct{ namespace, gateway, want string }{
		{"edge", "g", "one labelled tokens"}, {"edge", "h", "one"}, {"edge", "i", ""}, {"shop", "g", "labelled"}, {"istio-system", "g", "labelled root"},
	} {
		labels := mesh.LabelsOf(map[string]string{mesh.GatewayNameLabel: c.gateway, "app": "gw"})
		var names []string
		for k := range policy.Selecting(w.Tables, w.Graph.Naive(), c.namespace, labels).All() {
			names = append(names, k.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s in %s: %q, want %q", c.gateway, c.namespace, got, c.want)
		}
	}
	if all := policy.SetOf(w.Tables, w.Graph.Naive(), proxy.Class{Namespace: "edge"}); all.Namespace != "" {
		t.Errorf("policies with targets are for all workloads: %+v", all)
	}
}
