package operator

import "fmt"

// Invalid is an object of a namespace that the control plane refuses, and that the definitions of kinds admit.
func Invalid(namespace string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: wrong, namespace: %s}
spec: {hosts: ["a b"], http: [{route: [{destination: {host: web}}]}]}
`, namespace)
}

// Policies returns the failurePolicies of a configuration of checking webhooks, in order.
func (u *User) Policies(configuration string) string {
	u.Helper()
	return u.Kubectl("get", "validatingwebhookconfiguration", configuration, "-o", "jsonpath={.webhooks[*].failurePolicy}")
}

// FailsClosed waits until the control plane has tested a checking webhook. Its second entry, for the control plane's namespace, never blocks.
func (u *User) FailsClosed(configuration string) {
	u.Helper()
	u.Until("Fail in "+configuration, func() bool { return u.Policies(configuration) == "Fail Ignore" })
}

// Restarted makes the pods of the shop of a namespace again, and returns the revision of their proxies.
func (u *User) Restarted(namespace string) string {
	u.Helper()
	u.Kubectl("rollout", "restart", "deployment/web", "-n", namespace)
	u.RolledOut(namespace, "web")
	for _, p := range u.Pods(namespace) {
		if !p.Injected {
			u.Errorf("the pod %s of %s has no proxy", p.Name, namespace)
		}
		return p.Revision
	}
	return ""
}
