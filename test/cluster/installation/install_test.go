// Package installation tests pilotctl install, upgrade, uninstall and check on a real Kubernetes with pods. It holds tests only. They share one cluster,
// leave it as they found it, and do not run side by side.
package installation

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/cluster/operator"
)

var shared clustertest.Shared

func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, cluster.Options{Nodes: 1}, mesh.Images, pluginImage))
}

// user is a person with pilotctl and kubectl.
type user struct{ *operator.User }

func on(t *testing.T) *user {
	t.Helper()
	return &user{operator.New(t, shared.For(t))}
}

// TestLife: an installation from the first check to the last object: with a mistake in it that is corrected, a pod, a second call, an upgrade.
func TestLife(t *testing.T) {
	u := on(t)
	u.Kubectl("create", "namespace", "shop")
	t.Cleanup(func() { u.Kubectl("delete", "namespace", "shop") })
	u.Until("a root in the new namespace", func() bool { return strings.Contains(u.Kubectl("get", "configmap", "-n", "shop"), "kube-root-ca.crt") })
	before := u.Objects()
	if bad := u.Levels(); bad["error"] != nil || bad["warning"] != nil {
		t.Errorf("before the installation: %v", bad)
	}
	u.Refused(1, "waiting for Deployment istio-system/istiod took too long: 0 of 1 replicas are available", "install", "-f", u.Values, "--set", "image=missing.test/none:1", "--timeout", "15s")
	if hooks := u.Kubectl("get", "mutatingwebhookconfigurations", "-o", "name"); hooks != "" {
		t.Errorf("nobody answers the webhooks %s", hooks)
	}
	start := time.Now()
	u.Done("install", "--set", "image=pilot.test/pilot-discovery:v1")
	t.Logf("installed in %v", time.Since(start))

	generation := u.Kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.metadata.generation}")
	u.Done("install")
	if again := u.Kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.metadata.generation}"); again != generation {
		t.Errorf("a second installation has changed the Deployment: generation %s, before %s", again, generation)
	}
	u.inject()

	u.Refused(2, "the chart pilot has no value replicas", "upgrade", "--set", "replicas=2")
	u.Done("upgrade", "--set", "replicaCount=2", "--set", "meshConfig.accessLogFile=/dev/stdout")
	if n := u.Kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.status.availableReplicas}"); n != "2" {
		t.Errorf("%s replicas after the upgrade", n)
	}
	if m := u.Kubectl("get", "configmap/istio", "-n", "istio-system", "-o", "jsonpath={.data.mesh}"); !strings.Contains(m, "accessLogFile: /dev/stdout") {
		t.Errorf("the mesh configuration after the upgrade:\n%s", m)
	}
	u.Kubectl("label", "namespace", "shop", "istio-injection-")
	u.Done("uninstall", "--crds")
	u.Unchanged(before)
	u.Refused(1, "there is no installation of pilotctl", "uninstall")
}

// inject lets the control plane inject a pod, once its webhook has a root.
func (u *user) inject() {
	u.Helper()
	u.Kubectl("label", "namespace", "shop", "istio-injection=enabled")
	u.Until("the root of the webhooks", func() bool {
		return u.Kubectl("get", "mutatingwebhookconfiguration/istio-sidecar-injector", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}") != ""
	})
	u.Done("install") // it must not take the root back
	levels := u.Levels()
	if levels["error"] != nil {
		u.Errorf("after the installation: %v", levels["error"])
	}
	if !slices.Contains(levels["ok"], "injection: a pod of shop gets a proxy") {
		u.Errorf("after the installation: %v", levels)
	}
}

// TestOthers: objects and namespaces of other tools are neither changed nor removed.
func TestOthers(t *testing.T) {
	u := on(t)
	u.Kubectl("create", "namespace", "istio-system")
	t.Cleanup(func() { u.Kubectl("delete", "namespace", "istio-system") })
	u.Until("a root in the new namespace", func() bool {
		return strings.Contains(u.Kubectl("get", "configmap", "-n", "istio-system"), "kube-root-ca.crt")
	})
	u.Kubectl("create", "service", "clusterip", "istiod", "--tcp=15012", "-n", "istio-system")
	before := u.Objects()
	u.Refused(1, "Service istio-system/istiod (made by another tool)", "install", "--wait=false", "-f", u.Values)
	u.Unchanged(before)

	u.Done("install", "--wait=false", "-f", u.Values, "--revision", "canary")
	u.Done("install", "--wait=false", "--revision", "canary")
	if !strings.Contains(u.Kubectl("get", "deployments", "-n", "istio-system", "-o", "name"), "istiod-canary") {
		t.Error("the revision is not installed")
	}
	u.Refused(1, "there is no installation of pilotctl", "uninstall")
	u.Done("uninstall", "--revision", "canary", "--crds")
	u.Unchanged(before)
}
