package serving

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/cluster/operator"
)

// TestFailurePolicy: validation blocks once it works, opens before the last replica ends, and never blocks the control plane's own namespace.
func TestFailurePolicy(t *testing.T) {
	u := on(t)
	const checks = "istio-istio-system"
	u.Namespace("shop", "istio-injection=enabled")
	u.Done("install", "-f", u.Values)
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.FailsClosed(checks)
	if out, err := u.Applied(operator.Invalid("shop")); err == nil {
		t.Errorf("an object that is invalid is admitted: %s", out)
	}

	u.Kubectl("scale", "deployment/istiod", "-n", "istio-system", "--replicas=0")
	u.Until("Ignore without a replica", func() bool { return u.Policies(checks) == "Ignore Ignore" })
	u.Until("the end of the replica", func() bool { return u.Kubectl("get", "pods", "-n", "istio-system", "-o", "name") == "" })
	if out, err := u.Applied(operator.Invalid("shop")); err != nil {
		t.Errorf("without a replica: %v\n%s", err, out)
	}
	u.Kubectl("scale", "deployment/istiod", "-n", "istio-system", "--replicas=1")
	u.FailsClosed(checks)

	u.unreachable(checks)
	u.killed(checks)
}

// unreachable lets API servers call a port at which nothing answers, while replicas run. The replica is killed, because API servers keep connections.
func (u *user) unreachable(checks string) {
	u.Helper()
	const service = `{"spec": {"ports": [{"name": "https-webhook", "port": 443, "targetPort": %d, "protocol": "TCP"}]}}`
	u.Kubectl("patch", "service/istiod", "-n", "istio-system", "-p", fmt.Sprintf(service, 15999))
	u.kill()
	u.Until("Ignore without an answer", func() bool { return u.Policies(checks) == "Ignore Ignore" })
	if out, err := u.Applied(operator.Invalid("shop")); err != nil {
		u.Errorf("without an answer: %v\n%s", err, out)
	}
	if levels := u.Levels(); len(levels["error"]) == 0 {
		u.Errorf("check finds nothing wrong with a webhook that cannot be called: %v", levels)
	}
	u.Kubectl("patch", "service/istiod", "-n", "istio-system", "-p", fmt.Sprintf(service, 15017))
	u.FailsClosed(checks)
}

// kill kills all replicas without a word.
func (u *user) kill() {
	u.Helper()
	u.Kubectl("delete", "pod", "-n", "istio-system", "-l", "app=istiod", "--force", "--grace-period=0", "--wait=false")
}

// killed kills the only replica, and creates pods and objects before it is back: pods wait for their proxies, and the control plane's namespace is not blocked.
func (u *user) killed(checks string) {
	u.Helper()
	u.kill()
	own := strings.ReplaceAll(operator.Invalid("istio-system"), `"a b"`, "right.example")
	if out, err := u.Applied(own); err != nil {
		u.Errorf("an object of the control plane's namespace: %v\n%s", err, out)
	}
	u.Deploy("shop")
	for _, p := range u.Pods("shop") {
		if !p.Injected {
			u.Errorf("the pod %s was admitted without its proxy", p.Name)
		}
	}
	u.FailsClosed(checks)
}

// TestNewAuthority: the authority is replaced; API servers call the webhooks as before.
func TestNewAuthority(t *testing.T) {
	u := on(t)
	u.Namespace("shop", "istio-injection=enabled")
	u.Done("install", "-f", u.Values)
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.FailsClosed("istio-istio-system")
	root := func() string {
		return u.Kubectl("get", "mutatingwebhookconfiguration/istio-sidecar-injector", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
	}
	former := root()
	u.Kubectl("delete", "secret", "istio-ca-secret", "-n", "istio-system")
	u.Kubectl("rollout", "restart", "deployment/istiod", "-n", "istio-system")
	u.RolledOut("istio-system", "istiod")
	u.Until("another root", func() bool { is := root(); return is != former && is != "" })
	u.Deploy("shop")
	for _, p := range u.Pods("shop") {
		if !p.Injected {
			t.Errorf("the pod %s has no proxy", p.Name)
		}
	}
	u.FailsClosed("istio-istio-system")
	if out, err := u.Applied(operator.Invalid("shop")); err == nil {
		t.Errorf("an object that is invalid is admitted: %s", out)
	}
}
