package kubesource

import (
	"fmt"
	"strings"
	"testing"

	pilotcluster "github.com/pilotmesh/pilot/internal/controller/cluster"
)

// mayChangeNodes gives the account of the control plane the permission that the chart gives it with taint.enabled. NS is its namespace.
const mayChangeNodes = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS-nodes}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-nodes}
subjects: [{kind: ServiceAccount, name: pilot-discovery, namespace: NS}]
`

// agentPod is a pod on a node: its name, its label k8s-app, and the node.
const agentPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {k8s-app: %s}}
spec: {nodeName: %s, terminationGracePeriodSeconds: 0, tolerations: [{operator: Exists}], containers: [{name: install-cni, image: none}]}
`

// waitingNode makes a node with the taint and with one more.
func (p *place) waitingNode(name string) string {
	p.Helper()
	name = p.namespace + "-" + name
	p.Cleanup(func() { p.kubectl("", "delete", "node", name, "--ignore-not-found") })
	p.apply(fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s}
spec:
  taints:
  - {key: example.com/other, effect: NoSchedule, value: x}
  - {key: cni.istio.io/not-ready, effect: NoSchedule}
`, name))
	return name
}

// agent makes a pod on a node.
func (p *place) agent(name, label, node string) {
	p.Helper()
	p.apply(fmt.Sprintf(agentPod, name, label, node))
	p.Cleanup(func() {
		p.kubectl("", "delete", "pod", name, "--force", "--grace-period=0", "--ignore-not-found")
	})
}

// becomes sets the condition Ready of a pod, as a kubelet does.
func (p *place) becomes(pod, ready string) {
	p.Helper()
	p.kubectl("", "patch", "pod", pod, "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": %q}]}}`, ready))
}

// waits reports whether a node has the taint. The other one must be there in any case.
func (p *place) waits(node string) bool {
	p.Helper()
	keys := p.output("get", "node", node, "-o", "jsonpath={.spec.taints[*].key}")
	if !strings.Contains(keys, "example.com/other") {
		p.Errorf("the node %s has lost a taint of others: %s", node, keys)
	}
	return strings.Contains(keys, "cni.istio.io/not-ready")
}

// TestTaint: a node loses the taint once the agent of the plugin is ready on it, and no other taint. It keeps it while the agent is not ready, also before
// its condition is set, and if only another pod is ready.
func TestTaint(t *testing.T) {
	p := on(t)
	early, late, other := p.waitingNode("early"), p.waitingNode("late"), p.waitingNode("other")
	r := p.replica()
	target, err := pilotcluster.NewNodes(r.account)
	p.must(err)
	if err := target.RemoveTaint(t.Context(), early); err == nil || !strings.Contains(err.Error(), "taint.enabled") {
		t.Errorf("without the permission: %v", err)
	}
	text := strings.ReplaceAll(mayChangeNodes, "NS", p.namespace)
	p.apply(text)
	t.Cleanup(func() { p.kubectl(text, "delete", "--ignore-not-found", "-f", "-") })
	r.background(r.taints.Run)

	p.agent("early", "istio-cni-node", early)
	p.agent("late", "istio-cni-node", late)
	p.agent("other", "kube-proxy", other)
	p.becomes("other", "True")
	p.becomes("early", "True")
	p.until("no taint where the agent is ready", func() bool { return !p.waits(early) })
	if !p.waits(late) {
		t.Error("the taint is gone although the agent has no condition yet")
	}
	p.becomes("late", "False")
	next := p.waitingNode("next")
	p.agent("next", "istio-cni-node", next)
	p.becomes("next", "True")
	p.until("no taint on the next node", func() bool { return !p.waits(next) })
	if !p.waits(late) {
		t.Error("the taint is gone although the agent is not ready")
	}
	if !p.waits(other) {
		t.Error("the taint is gone although another pod is ready")
	}
	p.becomes("late", "True")
	p.until("no taint once the agent is ready", func() bool { return !p.waits(late) })
	p.kubectl("", "taint", "node", late, "cni.istio.io/not-ready:NoExecute") // a taint that is set again has no effect while the agent is ready
	p.until("no taint again", func() bool { return !p.waits(late) })
	p.must(target.RemoveTaint(t.Context(), late))
	p.must(target.RemoveTaint(t.Context(), "no-such-node"))
}
