package serving

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/cluster/operator"
)

// rate is how many requests a second a pod sends to the shop while control planes change.
const rate = 500

// callerManifest is a pod that sends requests through its own proxy to the proxy of the shop, until it is interrupted.
var callerManifest = `
apiVersion: v1
kind: Pod
metadata:
  name: caller
  namespace: shop
  annotations: {proxy.istio.io/config: '{"holdApplicationUntilProxyStarts": true}'}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers:
  - name: caller
    image: pilot.test/workload:v1
    args: [call, --duration=10m, -o=json, --qps=` + strconv.Itoa(rate) + `, --workers=8, "http://web.shop"]
`

// TestRollingUpgrade: two replicas are replaced under load. No request fails, and no proxy is sent anything again that it has.
func TestRollingUpgrade(t *testing.T) {
	u := on(t)
	u.Namespace("shop", "istio-injection=enabled")
	u.Done("install", "-f", u.Values, "--set", "replicaCount=2", "--set", "meshConfig.defaultConfig.proxyStatsMatcher.inclusionPrefixes={cluster.outbound,cluster_manager,listener_manager}")
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.Deploy("shop")
	u.Apply(callerManifest)
	u.Kubectl("wait", "--for=condition=Ready", "pod/caller", "-n", "shop", "--timeout", operator.Patience.String())
	u.Until("requests through the proxy", func() bool {
		return u.requests() > 2*rate
	})
	before := u.updates()
	start := u.requests()
	old := u.Kubectl("get", "pods", "-n", "istio-system", "-o", "name")

	u.Done("upgrade", "--set", "env.ROLLED=yes")
	u.Until("the end of the former replicas", func() bool {
		now := u.Kubectl("get", "pods", "-n", "istio-system", "-o", "name")
		for name := range strings.FieldsSeq(old) {
			if strings.Contains(now, name) {
				return false
			}
		}
		return true
	})
	u.Until("connections to the new replicas", func() bool { return u.connected() == 2 })
	if sent := u.requests() - start; sent < rate {
		t.Errorf("only %d requests during the upgrade", sent)
	}
	if found := u.resent(); len(found) > 0 {
		t.Errorf("proxies were sent what they had: %v", found)
	}
	u.endCaller()
	for name, n := range u.updates() {
		if n != before[name] {
			t.Errorf("%s: %d after the upgrade, %d before: something was sent again", name, n, before[name])
		}
	}
}

// requests returns how many requests of the caller its proxy has sent.
func (u *user) requests() int64 {
	u.Helper()
	return u.counter("caller", "web.shop.svc.cluster.local;.upstream_rq_completed") + u.counter("caller", "web.shop.svc.cluster.local.upstream_rq_completed")
}

// connected returns how many proxies the replicas of the control plane have.
func (u *user) connected() int {
	u.Helper()
	n := 0
	for pod := range strings.FieldsSeq(u.Kubectl("get", "pods", "-n", "istio-system", "-o", "name")) {
		var list []any
		u.Must(json.Unmarshal([]byte(u.Kubectl("exec", "-n", "istio-system", pod, "--", "pilot-discovery", "request", "GET", "/debug/syncz")), &list))
		n += len(list)
	}
	return n
}

// counter returns a number of the Envoy of a pod of the shop, by the end of its name; 0 if it has no such one. A Deployment is named by its name.
func (u *user) counter(of, name string) int64 {
	u.Helper()
	pod := of
	if of != "caller" {
		pod = "deployment/" + of
	}
	page := u.Kubectl("exec", "-n", "shop", pod, "-c", "istio-proxy", "--", "pilot-agent", "request", "GET", "stats")
	for line := range strings.Lines(page) {
		if is, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.HasSuffix(is, name) {
			n, _ := strconv.ParseInt(value, 10, 64) //nolint:errcheck // a histogram is no number
			return n
		}
	}
	return 0
}

// updates returns how often the proxies of the shop have taken another configuration, by pod and kind.
func (u *user) updates() map[string]int64 {
	u.Helper()
	all := map[string]int64{}
	for _, of := range []string{"caller", "web"} {
		for _, name := range []string{
			"cluster_manager.cluster_added", "cluster_manager.cluster_modified", "cluster_manager.cluster_removed", "listener_manager.listener_added",
			"listener_manager.listener_modified", "listener_manager.listener_removed",
		} {
			all[of+" "+name] = u.counter(of, name)
		}
	}
	return all
}

// endCaller interrupts the caller, and reads what became of its requests.
func (u *user) endCaller() {
	u.Helper()
	_ = u.Kubectl("exec", "-n", "shop", "caller", "-c", "caller", "--", "sh", "-c", "kill -INT 1 || true")
	var sum struct {
		Requests, Failures int
		Errors             map[string]int
	}
	u.Until("the result of the caller", func() bool {
		line, _, _ := strings.Cut(u.Kubectl("logs", "caller", "-n", "shop", "-c", "caller"), "\n")
		return json.Unmarshal([]byte(line), &sum) == nil && sum.Requests > 0
	})
	if sum.Failures > 0 {
		u.Errorf("%d of %d requests failed: %v", sum.Failures, sum.Requests, sum.Errors)
	}
	u.Logf("%d requests, %d failures", sum.Requests, sum.Failures)
}

// resent returns how many clusters, listeners and routes the present replicas have sent. Endpoints are left out: the replicas are endpoints themselves.
func (u *user) resent() map[string]string {
	u.Helper()
	found, counters := map[string]string{}, 0
	for pod := range strings.FieldsSeq(u.Kubectl("get", "pods", "-n", "istio-system", "-o", "name")) {
		page := u.Kubectl("exec", "-n", "istio-system", pod, "--", "pilot-discovery", "request", "GET", "/metrics")
		for line := range strings.Lines(page) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.HasPrefix(name, "pilot_xds_sent_resources_total{") {
				continue
			}
			counters++
			if !strings.Contains(name, `"eds"`) && value != "0" {
				found[pod+" "+name] = value
			}
		}
	}
	if counters == 0 {
		u.Error("the replicas count no resources")
	}
	return found
}

// TestKilledDuringRollOut: all replicas are killed while a Deployment is rolled out. Each pod that is admitted has its proxy.
func TestKilledDuringRollOut(t *testing.T) {
	u := on(t)
	u.Namespace("shop", "istio-injection=enabled")
	u.Done("install", "-f", u.Values, "--set", "replicaCount=2")
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.Deploy("shop")
	u.Kubectl("scale", "deployment/web", "-n", "shop", "--replicas=6")
	u.Kubectl("rollout", "restart", "deployment/web", "-n", "shop")
	u.kill()
	u.RolledOut("shop", "web")
	pods := u.Pods("shop")
	if len(pods) < 6 {
		t.Errorf("%d pods", len(pods))
	}
	for _, p := range pods {
		if !p.Injected {
			t.Errorf("the pod %s was admitted without its proxy", p.Name)
		}
	}
}
