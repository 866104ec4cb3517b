package installation

import (
	"fmt"
	"strings"
	"testing"
)

// invalid is an object of a namespace that the control plane refuses, and that the definitions of kinds admit.
func invalid(namespace string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: wrong, namespace: %s}
spec: {hosts: ["a b"], http: [{route: [{destination: {host: web}}]}]}
`, namespace)
}

// policies returns the failurePolicies of a configuration of checking webhooks, in order.
func (u *user) policies(configuration string) string {
	u.Helper()
	return u.kubectl("get", "validatingwebhookconfiguration", configuration, "-o", "jsonpath={.webhooks[*].failurePolicy}")
}

// failsClosed waits until the control plane has tested a checking webhook. Its second entry, for the control plane's namespace, never blocks.
func (u *user) failsClosed(configuration string) {
	u.Helper()
	u.until("Fail in "+configuration, func() bool { return u.policies(configuration) == "Fail Ignore" })
}

// TestFailurePolicy: validation blocks once it works, opens before the last replica ends, and never blocks the control plane's own namespace.
func TestFailurePolicy(t *testing.T) {
	u := on(t)
	const checks = "istio-istio-system"
	u.namespace("shop", "istio-injection=enabled")
	u.done("install", "-f", u.values)
	t.Cleanup(func() { u.run("uninstall", "--crds") })
	u.failsClosed(checks)
	if out, err := u.applied(invalid("shop")); err == nil {
		t.Errorf("an object that is invalid is admitted: %s", out)
	}

	u.kubectl("scale", "deployment/istiod", "-n", "istio-system", "--replicas=0")
	u.until("Ignore without a replica", func() bool { return u.policies(checks) == "Ignore Ignore" })
	u.until("the end of the replica", func() bool { return u.kubectl("get", "pods", "-n", "istio-system", "-o", "name") == "" })
	if out, err := u.applied(invalid("shop")); err != nil {
		t.Errorf("without a replica: %v\n%s", err, out)
	}
	u.kubectl("scale", "deployment/istiod", "-n", "istio-system", "--replicas=1")
	u.failsClosed(checks)

	u.unreachable(checks)
	u.killed(checks)
}

// unreachable lets API servers call a port at which nothing answers, while replicas run. The replica is killed, because API servers keep connections.
func (u *user) unreachable(checks string) {
	u.Helper()
	const service = `{"spec": {"ports": [{"name": "https-webhook", "port": 443, "targetPort": %d, "protocol": "TCP"}]}}`
	u.kubectl("patch", "service/istiod", "-n", "istio-system", "-p", fmt.Sprintf(service, 15999))
	u.kill()
	u.until("Ignore without an answer", func() bool { return u.policies(checks) == "Ignore Ignore" })
	if out, err := u.applied(invalid("shop")); err != nil {
		u.Errorf("without an answer: %v\n%s", err, out)
	}
	if levels := u.levels(); len(levels["error"]) == 0 {
		u.Errorf("check finds nothing wrong with a webhook that cannot be called: %v", levels)
	}
	u.kubectl("patch", "service/istiod", "-n", "istio-system", "-p", fmt.Sprintf(service, 15017))
	u.failsClosed(checks)
}

// kill kills all replicas without a word.
func (u *user) kill() {
	u.Helper()
	u.kubectl("delete", "pod", "-n", "istio-system", "-l", "app=istiod", "--force", "--grace-period=0", "--wait=false")
}

// killed kills the only replica, and creates pods and objects before it is back: pods wait for their proxies, and the control plane's namespace is not blocked.
func (u *user) killed(checks string) {
	u.Helper()
	u.kill()
	own := strings.ReplaceAll(invalid("istio-system"), `"a b"`, "right.example")
	if out, err := u.applied(own); err != nil {
		u.Errorf("an object of the control plane's namespace: %v\n%s", err, out)
	}
	u.deploy("shop")
	for _, p := range u.pods("shop") {
		if !p.Injected {
			u.Errorf("the pod %s was admitted without its proxy", p.Name)
		}
	}
	u.failsClosed(checks)
}

// TestNewAuthority: the authority is replaced; API servers call the webhooks as before.
func TestNewAuthority(t *testing.T) {
	u := on(t)
	u.namespace("shop", "istio-injection=enabled")
	u.done("install", "-f", u.values)
	t.Cleanup(func() { u.run("uninstall", "--crds") })
	u.failsClosed("istio-istio-system")
	root := func() string {
		return u.kubectl("get", "mutatingwebhookconfiguration/istio-sidecar-injector", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
	}
	former := root()
	u.kubectl("delete", "secret", "istio-ca-secret", "-n", "istio-system")
	u.kubectl("rollout", "restart", "deployment/istiod", "-n", "istio-system")
	u.rolledOut("istio-system", "istiod")
	u.until("another root", func() bool { is := root(); return is != former && is != "" })
	u.deploy("shop")
	for _, p := range u.pods("shop") {
		if !p.Injected {
			t.Errorf("the pod %s has no proxy", p.Name)
		}
	}
	u.failsClosed("istio-istio-system")
	if out, err := u.applied(invalid("shop")); err == nil {
		t.Errorf("an object that is invalid is admitted: %s", out)
	}
}
