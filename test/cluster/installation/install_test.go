// Package installation tests pilotctl install, upgrade, uninstall and check on a real Kubernetes with pods. It holds tests only. They share one cluster,
// leave it as they found it, and do not run side by side.
package installation

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
)

var shared clustertest.Shared

func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, cluster.Options{Nodes: 1}, mesh.Images, pluginImage))
}

// patience is for what takes a moment on an idle machine.
const patience = 2 * time.Minute

// values name the images of the test cluster.
const values = `
image: pilot.test/pilot-discovery:v1
autoscaleEnabled: false
resources: {requests: {cpu: 10m, memory: 32Mi}}
global:
  proxy: {image: "pilot.test/pilot-agent:v1", resources: {requests: {cpu: 10m, memory: 32Mi}}}
  proxy_init: {image: "pilot.test/pilot-agent:v1"}
`

// user is a person with pilotctl and kubectl.
type user struct {
	*testing.T
	c                *cluster.Cluster
	pilotctl, values string
}

func on(t *testing.T) *user {
	t.Helper()
	u := &user{T: t, c: shared.For(t)}
	root, err := binaries.Root()
	u.must(err)
	u.pilotctl = filepath.Join(root, "bin", "pilotctl")
	u.must(cluster.BuildProgram(t.Context(), u.pilotctl, root, "./cmd/pilotctl"))
	u.values = filepath.Join(t.TempDir(), "values.yaml")
	u.must(os.WriteFile(u.values, []byte(values), 0o600))
	return u
}

func (u *user) must(err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

// run calls pilotctl for the cluster, shows and returns its output, and returns its exit code.
func (u *user) run(args ...string) (string, int) {
	u.Helper()
	out, code := u.free(append(slices.Clone(args), "--kubeconfig", u.c.Kubeconfig())...)
	u.Logf("pilotctl %s\n%s", strings.Join(args, " "), out)
	return out, code
}

// free calls pilotctl and returns its output and exit code.
func (u *user) free(args ...string) (string, int) {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // also for what cleans up after a test
	defer cancel()
	cmd := exec.CommandContext(ctx, u.pilotctl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.c.Kubeconfig())
	out, err := cmd.CombinedOutput()
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok:
		return string(out), failed.ExitCode()
	case err != nil:
		u.Fatal(err)
	}
	return string(out), 0
}

// done calls pilotctl, which must succeed.
func (u *user) done(args ...string) string {
	u.Helper()
	out, code := u.run(args...)
	if code != 0 {
		u.Errorf("pilotctl %s: exit code %d", strings.Join(args, " "), code)
		u.Fatalf("pods:\n%s", u.kubectl("describe", "pods", "-n", "istio-system"))
	}
	return out
}

// refused calls pilotctl, which must fail with an exit code and a text.
func (u *user) refused(code int, text string, args ...string) {
	u.Helper()
	if out, is := u.run(args...); is != code || !strings.Contains(out, text) {
		u.Errorf("pilotctl %s: exit code %d, want %d and %q", strings.Join(args, " "), is, code, text)
	}
}

func (u *user) kubectl(args ...string) string {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also for what cleans up after a test
	defer cancel()
	out, err := u.tried(ctx, args...)
	if err != nil {
		u.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// tried calls kubectl, which may fail.
func (u *user) tried(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, u.c.Kubectl(), append([]string{"--kubeconfig", u.c.Kubeconfig()}, args...)...).CombinedOutput()
	return string(out), err
}

// until waits for a condition of the cluster.
func (u *user) until(what string, ok func() bool) {
	u.Helper()
	limit := time.After(patience)
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit:
			u.Fatalf("waiting for: %s", what)
		}
	}
}

// objects returns the names of all objects of the cluster, without events.
func (u *user) objects() []string {
	u.Helper()
	var all []string
	for kind := range strings.FieldsSeq(u.kubectl("api-resources", "--verbs=list", "-o", "name")) {
		if strings.HasPrefix(kind, "events") || kind == "componentstatuses" {
			continue
		}
		list := u.kubectl("get", kind, "-A", "--ignore-not-found", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		for name := range strings.FieldsSeq(list) {
			all = append(all, kind+" "+name)
		}
	}
	slices.Sort(all)
	return all
}

// unchanged compares the objects of the cluster with their former state.
func (u *user) unchanged(before []string) {
	u.Helper()
	var after []string
	limit := time.Now().Add(patience / 4) // controllers remove what belongs to objects that are gone
	for after = u.objects(); !slices.Equal(after, before) && time.Now().Before(limit); {
		after = u.objects()
	}
	for _, name := range after {
		if !slices.Contains(before, name) {
			u.Errorf("uninstall has left %s", name)
		}
	}
	for _, name := range before {
		if !slices.Contains(after, name) {
			u.Errorf("uninstall has removed %s, which was there before", name)
		}
	}
}

// levels returns the findings of pilotctl check by level.
func (u *user) levels(args ...string) map[string][]string {
	u.Helper()
	out, _ := u.run(append([]string{"check", "-o", "json"}, args...)...)
	var found []struct{ Check, Level, Result string }
	u.must(json.Unmarshal([]byte(out), &found))
	levels := map[string][]string{}
	for _, f := range found {
		levels[f.Level] = append(levels[f.Level], f.Check+": "+f.Result)
	}
	return levels
}

// TestLife: an installation from the first check to the last object: with a mistake in it that is corrected, a pod, a second call, an upgrade.
func TestLife(t *testing.T) {
	u := on(t)
	u.kubectl("create", "namespace", "shop")
	t.Cleanup(func() { u.kubectl("delete", "namespace", "shop") })
	u.until("a root in the new namespace", func() bool { return strings.Contains(u.kubectl("get", "configmap", "-n", "shop"), "kube-root-ca.crt") })
	before := u.objects()
	if bad := u.levels(); bad["error"] != nil || bad["warning"] != nil {
		t.Errorf("before the installation: %v", bad)
	}
	u.refused(1, "waiting for Deployment istio-system/istiod took too long: 0 of 1 replicas are available", "install", "-f", u.values, "--set", "image=missing.test/none:1", "--timeout", "15s")
	if hooks := u.kubectl("get", "mutatingwebhookconfigurations", "-o", "name"); hooks != "" {
		t.Errorf("nobody answers the webhooks %s", hooks)
	}
	start := time.Now()
	u.done("install", "--set", "image=pilot.test/pilot-discovery:v1")
	t.Logf("installed in %v", time.Since(start))

	generation := u.kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.metadata.generation}")
	u.done("install")
	if again := u.kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.metadata.generation}"); again != generation {
		t.Errorf("a second installation has changed the Deployment: generation %s, before %s", again, generation)
	}
	u.inject()

	u.refused(2, "the chart pilot has no value replicas", "upgrade", "--set", "replicas=2")
	u.done("upgrade", "--set", "replicaCount=2", "--set", "meshConfig.accessLogFile=/dev/stdout")
	if n := u.kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.status.availableReplicas}"); n != "2" {
		t.Errorf("%s replicas after the upgrade", n)
	}
	if m := u.kubectl("get", "configmap/istio", "-n", "istio-system", "-o", "jsonpath={.data.mesh}"); !strings.Contains(m, "accessLogFile: /dev/stdout") {
		t.Errorf("the mesh configuration after the upgrade:\n%s", m)
	}
	u.kubectl("label", "namespace", "shop", "istio-injection-")
	u.done("uninstall", "--crds")
	u.unchanged(before)
	u.refused(1, "there is no installation of pilotctl", "uninstall")
}

// inject lets the control plane inject a pod, once its webhook has a root.
func (u *user) inject() {
	u.Helper()
	u.kubectl("label", "namespace", "shop", "istio-injection=enabled")
	u.until("the root of the webhooks", func() bool {
		return u.kubectl("get", "mutatingwebhookconfiguration/istio-sidecar-injector", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}") != ""
	})
	u.done("install") // it must not take the root back
	levels := u.levels()
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
	u.kubectl("create", "namespace", "istio-system")
	t.Cleanup(func() { u.kubectl("delete", "namespace", "istio-system") })
	u.until("a root in the new namespace", func() bool {
		return strings.Contains(u.kubectl("get", "configmap", "-n", "istio-system"), "kube-root-ca.crt")
	})
	u.kubectl("create", "service", "clusterip", "istiod", "--tcp=15012", "-n", "istio-system")
	before := u.objects()
	u.refused(1, "Service istio-system/istiod (made by another tool)", "install", "--wait=false", "-f", u.values)
	u.unchanged(before)

	u.done("install", "--wait=false", "-f", u.values, "--revision", "canary")
	u.done("install", "--wait=false", "--revision", "canary")
	if !strings.Contains(u.kubectl("get", "deployments", "-n", "istio-system", "-o", "name"), "istiod-canary") {
		t.Error("the revision is not installed")
	}
	u.refused(1, "there is no installation of pilotctl", "uninstall")
	u.done("uninstall", "--revision", "canary", "--crds")
	u.unchanged(before)
}
