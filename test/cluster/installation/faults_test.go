package installation

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/test/cluster/mesh"
)

// interrupted calls pilotctl, sends it a signal when it prints a line with a text, and waits for its end.
func (u *user) interrupted(at string, by os.Signal, args ...string) string {
	u.Helper()
	ctx, cancel := context.WithTimeout(u.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.pilotctl, append(args, "--kubeconfig", u.c.Kubeconfig())...)
	out, err := cmd.StdoutPipe()
	u.must(err)
	var failure strings.Builder
	cmd.Stderr = &failure
	u.must(cmd.Start())
	hit := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if !hit && strings.Contains(lines.Text(), at) {
			hit = true
			u.must(cmd.Process.Signal(by))
		}
	}
	err = cmd.Wait()
	if !hit || err == nil {
		u.Fatalf("pilotctl %s was not interrupted at %q: %v\n%s", strings.Join(args, " "), at, err, failure.String())
	}
	return failure.String()
}

// TestInterrupted: an installation that is killed at any point is removed without a trace, or completed by the next call, and so is an upgrade.
func TestInterrupted(t *testing.T) {
	u := on(t)
	before := u.objects()
	for _, at := range []string{"Namespace istio-system: made", "definitions of kinds: applied", "Deployment istio-system/istiod: applied"} {
		u.interrupted(at, syscall.SIGKILL, "install", "-f", u.values)
		u.done("uninstall", "--crds")
		u.unchanged(before)
	}
	said := u.interrupted("Deployment istio-system/istiod: applied", os.Interrupt, "install", "-f", u.values, "--set", "image=missing.test/none:1")
	if !strings.Contains(said, "call the command again") {
		t.Errorf("Ctrl-C says %q", said)
	}
	u.interrupted("ClusterRole", syscall.SIGKILL, "install", "-f", u.values)
	u.done("install", "-f", u.values)
	t.Cleanup(func() { u.run("uninstall", "--crds") })
	u.until("the root of the webhooks", u.rooted("istio-sidecar-injector"))
	u.interrupted("ConfigMap istio-system/istio: applied", syscall.SIGKILL, "upgrade", "--set", "replicaCount=2")
	u.done("upgrade")
	if n := u.kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.status.availableReplicas}"); n != "2" {
		t.Errorf("%s replicas after the upgrade that was interrupted", n)
	}
	if bad := u.levels(); bad["error"] != nil {
		t.Errorf("check: %v", bad["error"])
	}
	u.done("uninstall", "--crds")
	u.unchanged(before)
}

// TestFormerValues: an installation of a version with other values stops an upgrade before anything is written. The error names each value; each is taken
// back.
func TestFormerValues(t *testing.T) {
	u := on(t)
	u.done("install", "-f", u.values)
	t.Cleanup(func() { u.run("uninstall", "--crds") })
	const secret = "secret/pilot-installation"
	text, err := base64.StdEncoding.DecodeString(u.kubectl("get", secret, "-n", "istio-system", "-o", "jsonpath={.data.values}"))
	u.must(err)
	var values map[string]any
	u.must(yaml.Unmarshal(text, &values))
	values["formerSetting"] = map[string]any{"enabled": true}
	values["global"].(map[string]any)["proxy"].(map[string]any)["formerImage"] = "x"
	text, err = yaml.Marshal(values)
	u.must(err)
	u.kubectl("patch", secret, "-n", "istio-system", "--type=merge", "-p", fmt.Sprintf(`{"data": {"values": %q, "version": %q}}`,
		base64.StdEncoding.EncodeToString(text), base64.StdEncoding.EncodeToString([]byte("v0.1.0\n"))))

	written := func() string {
		return u.kubectl("get", "deployments,configmaps,secrets,services,roles", "-n", "istio-system", "-l", "app.kubernetes.io/managed-by=pilotctl",
			"-o", `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.managedFields[?(@.manager=="pilotctl")].time}{"\n"}{end}`)
	}
	was := written()
	for _, want := range []string{"the chart pilot has no value formerSetting", "the chart pilot has no value global.proxy.formerImage", "stored values of version v0.1.0", "--set NAME=null"} {
		u.refused(2, want, "upgrade", "--set", "replicaCount=2")
	}
	u.refused(2, "global.proxy.formerImage", "upgrade", "--set", "formerSetting=null")
	if is := written(); is != was {
		t.Errorf("something was written:\n%s\nbefore:\n%s", is, was)
	}
	u.done("upgrade", "--set", "formerSetting=null,global.proxy.formerImage=null")
	u.done("upgrade") // they do not come back
	if out := u.done("check"); strings.Contains(out, "v0.1.0") {
		t.Errorf("the version of the installation is still the former one:\n%s", out)
	}
}

// oldDefinition is the definition of VirtualServices of a release before their version v1, which another tool has installed.
func (u *user) oldDefinition() string {
	u.Helper()
	file, err := mesh.Definitions(u.Context())
	u.must(err)
	text, err := os.ReadFile(file)
	u.must(err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o map[string]any
		u.must(yaml.Unmarshal([]byte(document), &o))
		meta, _ := o["metadata"].(map[string]any)
		if meta == nil || meta["name"] != "virtualservices.networking.istio.io" {
			continue
		}
		spec := o["spec"].(map[string]any)
		var kept []any
		for _, one := range spec["versions"].([]any) {
			if v := one.(map[string]any); v["name"] != "v1" {
				v["storage"] = v["name"] == "v1beta1"
				kept = append(kept, v)
			}
		}
		spec["versions"] = kept
		old, err := yaml.Marshal(o)
		u.must(err)
		return string(old)
	}
	u.Fatal("there is no definition of VirtualServices")
	return ""
}

// TestOldDefinitions: where a definition of an older release exists, it stays, and check names the versions that are missing. The control plane reads and checks objects
// in the version that there is, and follows when the definition is brought up to date. It stays after the removal, because another tool has made it.
func TestOldDefinitions(t *testing.T) {
	u := on(t)
	const definition = "crd/virtualservices.networking.istio.io"
	u.apply(u.oldDefinition())
	t.Cleanup(func() { u.kubectl("delete", definition, "--ignore-not-found") })
	u.kubectl("wait", "--for=condition=Established", definition, "--timeout", patience.String())
	before := u.objects()
	lacks := func() bool {
		return regexp.MustCompile(`virtualservices\S* does not serve the versions \[v1\]`).MatchString(strings.Join(u.levels()["error"], "\n"))
	}
	if !lacks() {
		t.Error("check before the installation does not name the version that is missing")
	}
	if out := u.done("install", "-f", u.values); !strings.Contains(out, "1 definitions of kinds exist already and stay as they are") {
		t.Errorf("install does not say that the definition stays:\n%s", out)
	}
	t.Cleanup(func() { u.run("uninstall", "--crds") })
	u.until("the root of the webhooks", u.rooted("istio-sidecar-injector"))
	u.failsClosed("istio-istio-system")
	u.namespace("shop", "istio-injection=enabled")
	u.deploy("shop")
	route := func(version, name string) string {
		return strings.NewReplacer("networking.istio.io/v1", "networking.istio.io/"+version, `"a b"`, "web", "name: wrong", "name: "+name).Replace(invalid("shop"))
	}
	u.apply(route("v1beta1", "right"))
	u.kubectl("wait", "--for=condition=Accepted", "virtualservice/right", "-n", "shop", "--timeout", patience.String())
	old := strings.ReplaceAll(invalid("shop"), "networking.istio.io/v1", "networking.istio.io/v1beta1")
	if out, err := u.applied(old); err == nil || !strings.Contains(out, `admission webhook "validation.istio.io" denied`) {
		t.Errorf("an object that is invalid, in the older version: %v\n%s", err, out)
	}
	if !lacks() {
		t.Error("check after the installation does not name the version that is missing")
	}

	file, err := mesh.Definitions(t.Context())
	u.must(err)
	u.kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
	if lacks() {
		t.Error("check still names a version that is there now")
	}
	u.kubectl("wait", "--for=condition=Established", definition, "--timeout", patience.String())
	u.until("the newer version", func() bool { _, err := u.applied(route("v1", "newer")); return err == nil })
	u.kubectl("wait", "--for=condition=Accepted", "virtualservice/newer", "-n", "shop", "--timeout", patience.String())
	u.kubectl("delete", "namespace", "shop")
	u.done("uninstall", "--crds")
	before = append(before, "apiservices.apiregistration.k8s.io /v1.networking.istio.io") // of the definition that has the version now
	slices.Sort(before)
	u.unchanged(before)
}

// istioWebhook is the injecting webhook of an installation of Istio, whose control plane does not answer.
const istioWebhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: istio-sidecar-injector
  labels: {app: sidecar-injector, istio.io/rev: default, release: istio, operator.istio.io/component: Pilot}
webhooks:
- name: namespace.sidecar-injector.istio.io
  clientConfig: {service: {name: istiod, namespace: istio-system, path: /inject, port: 443}, caBundle: %s}
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Fail
  timeoutSeconds: 2
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  namespaceSelector: {matchExpressions: [{key: istio-injection, operator: In, values: [enabled]}]}
`

// TestIstioWebhook: beside an active webhook of Istio, nothing is installed over it, and a revision is. Its webhook stays as it is. Pods of a namespace
// without a label get no proxy.
func TestIstioWebhook(t *testing.T) {
	u := on(t)
	u.namespace("shop", "istio.io/rev=canary")
	u.namespace("plain")
	root := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	_, err := u.applied(fmt.Sprintf(istioWebhook, root))
	if err != nil { // API servers of later versions check the roots
		root = u.kubectl("config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}")
		u.apply(fmt.Sprintf(istioWebhook, root))
	}
	t.Cleanup(func() {
		u.kubectl("delete", "mutatingwebhookconfiguration", "istio-sidecar-injector", "--ignore-not-found")
	})
	before := u.objects()
	theirs := func() string {
		return u.kubectl("get", "mutatingwebhookconfiguration/istio-sidecar-injector", "-o", "jsonpath={.metadata.generation} {.webhooks[0].clientConfig.caBundle}")
	}
	was := theirs()
	u.refused(1, "MutatingWebhookConfiguration istio-sidecar-injector (made by another tool)", "install", "-f", u.values)
	u.unchanged(before)
	if found := strings.Join(u.levels()["error"], "\n"); !strings.Contains(found, "istio-sidecar-injector calls the service istio-system/istiod, which has no ready endpoint") {
		t.Errorf("check does not find the webhook of a control plane that is gone: %s", found)
	}
	u.done("install", "-f", u.values, "--revision", "canary")
	t.Cleanup(func() { u.run("uninstall", "--revision", "canary", "--crds") })
	u.until("the root of the webhooks", u.rooted("istio-sidecar-injector-canary"))
	u.deploy("shop")
	if r := u.restarted("shop"); r != "canary" {
		t.Errorf("the proxy has the revision %q", r)
	}
	u.deploy("plain")
	for _, p := range u.pods("plain") {
		if p.Injected {
			t.Errorf("the pod %s of a namespace without a label has a proxy", p.Name)
		}
	}
	u.kubectl("delete", "deployment,service", "web", "-n", "shop")
	u.kubectl("delete", "deployment,service", "web", "-n", "plain")
	if is := theirs(); is != was {
		t.Errorf("the webhook of Istio has changed: %s, before %s", is, was)
	}
	u.done("uninstall", "--revision", "canary", "--crds")
	u.unchanged(before)
	if is := theirs(); is != was {
		t.Errorf("the webhook of Istio has changed: %s, before %s", is, was)
	}
}

// largePod is a pod with as many bytes of variables and of annotations as asked for.
func largePod(name string, variables, annotations int) string {
	var env strings.Builder
	const each = 10_000
	for n := range variables / each {
		fmt.Fprintf(&env, "    - {name: V%d, value: %s}\n", n, strings.Repeat("x", each))
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, annotations: {example.com/large: %q}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: pilot.test/workload:v1
    args: [serve, "--http=:8080"]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
    env:
%s`, name, strings.Repeat("y", annotations), env.String())
}

// TestLargePods: pods near the limits of the API server get their proxies and start. One that is too large with its proxy is refused, and never made
// without it.
func TestLargePods(t *testing.T) {
	u := on(t)
	u.namespace("shop", "istio-injection=enabled")
	u.done("install", "-f", u.values)
	t.Cleanup(func() { u.run("uninstall", "--crds") })
	u.until("the root of the webhooks", u.rooted("istio-sidecar-injector"))
	made := func(manifest string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, u.c.Kubectl(), "--kubeconfig", u.c.Kubeconfig(), "create", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := made(largePod("large", 1_000_000, 200_000)); err != nil {
		t.Fatalf("a large pod: %v\n%.2000s", err, out)
	}
	u.kubectl("wait", "--for=condition=Ready", "pod/large", "-n", "shop", "--timeout", patience.String())
	for name, manifest := range map[string]string{"annotated": largePod("annotated", 0, 262_000), "huge": largePod("huge", 1_500_000, 0)} {
		out, err := made(manifest)
		t.Logf("%s: %v %.300s", name, err, out)
	}
	for _, p := range u.pods("shop") {
		if !p.Injected {
			t.Errorf("the pod %s has no proxy", p.Name)
		}
	}
}
