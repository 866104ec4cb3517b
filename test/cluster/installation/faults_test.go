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
	"github.com/pilotmesh/pilot/test/cluster/operator"
)

// interrupted calls pilotctl, sends it a signal when it prints a line with a text, and waits for its end.
func (u *user) interrupted(at string, by os.Signal, args ...string) string {
	u.Helper()
	ctx, cancel := context.WithTimeout(u.Context(), operator.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.Pilotctl, append(args, "--kubeconfig", u.C.Kubeconfig())...)
	out, err := cmd.StdoutPipe()
	u.Must(err)
	var failure strings.Builder
	cmd.Stderr = &failure
	u.Must(cmd.Start())
	hit := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if !hit && strings.Contains(lines.Text(), at) {
			hit = true
			u.Must(cmd.Process.Signal(by))
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
	before := u.Objects()
	for _, at := range []string{"Namespace istio-system: made", "definitions of kinds: applied", "Deployment istio-system/istiod: applied"} {
		u.interrupted(at, syscall.SIGKILL, "install", "-f", u.Values)
		u.Done("uninstall", "--crds")
		u.Unchanged(before)
	}
	said := u.interrupted("Deployment istio-system/istiod: applied", os.Interrupt, "install", "-f", u.Values, "--set", "image=missing.test/none:1")
	if !strings.Contains(said, "call the command again") {
		t.Errorf("Ctrl-C says %q", said)
	}
	u.interrupted("ClusterRole", syscall.SIGKILL, "install", "-f", u.Values)
	u.Done("install", "-f", u.Values)
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.interrupted("ConfigMap istio-system/istio: applied", syscall.SIGKILL, "upgrade", "--set", "replicaCount=2")
	u.Done("upgrade")
	if n := u.Kubectl("get", "deployment/istiod", "-n", "istio-system", "-o", "jsonpath={.status.availableReplicas}"); n != "2" {
		t.Errorf("%s replicas after the upgrade that was interrupted", n)
	}
	if bad := u.Levels(); bad["error"] != nil {
		t.Errorf("check: %v", bad["error"])
	}
	u.Done("uninstall", "--crds")
	u.Unchanged(before)
}

// TestFormerValues: an installation of a version with other values stops an upgrade before anything is written. The error names each value; each is taken
// back.
func TestFormerValues(t *testing.T) {
	u := on(t)
	u.Done("install", "-f", u.Values)
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	const secret = "secret/pilot-installation"
	text, err := base64.StdEncoding.DecodeString(u.Kubectl("get", secret, "-n", "istio-system", "-o", "jsonpath={.data.values}"))
	u.Must(err)
	var values map[string]any
	u.Must(yaml.Unmarshal(text, &values))
	values["formerSetting"] = map[string]any{"enabled": true}
	values["global"].(map[string]any)["proxy"].(map[string]any)["formerImage"] = "x"
	text, err = yaml.Marshal(values)
	u.Must(err)
	u.Kubectl("patch", secret, "-n", "istio-system", "--type=merge", "-p", fmt.Sprintf(`{"data": {"values": %q, "version": %q}}`,
		base64.StdEncoding.EncodeToString(text), base64.StdEncoding.EncodeToString([]byte("v0.1.0\n"))))

	written := func() string {
		return u.Kubectl("get", "deployments,configmaps,secrets,services,roles", "-n", "istio-system", "-l", "app.kubernetes.io/managed-by=pilotctl",
			"-o", `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.managedFields[?(@.manager=="pilotctl")].time}{"\n"}{end}`)
	}
	was := written()
	for _, want := range []string{"the chart pilot has no value formerSetting", "the chart pilot has no value global.proxy.formerImage", "stored values of version v0.1.0", "--set NAME=null"} {
		u.Refused(2, want, "upgrade", "--set", "replicaCount=2")
	}
	u.Refused(2, "global.proxy.formerImage", "upgrade", "--set", "formerSetting=null")
	if is := written(); is != was {
		t.Errorf("something was written:\n%s\nbefore:\n%s", is, was)
	}
	u.Done("upgrade", "--set", "formerSetting=null,global.proxy.formerImage=null")
	u.Done("upgrade") // they do not come back
	if out := u.Done("check"); strings.Contains(out, "v0.1.0") {
		t.Errorf("the version of the installation is still the former one:\n%s", out)
	}
}

// oldDefinition is the definition of VirtualServices of a release before their version v1, which another tool has installed.
func (u *user) oldDefinition() string {
	u.Helper()
	file, err := mesh.Definitions(u.Context())
	u.Must(err)
	text, err := os.ReadFile(file)
	u.Must(err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o map[string]any
		u.Must(yaml.Unmarshal([]byte(document), &o))
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
		u.Must(err)
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
	u.Apply(u.oldDefinition())
	t.Cleanup(func() { u.Kubectl("delete", definition, "--ignore-not-found") })
	u.Kubectl("wait", "--for=condition=Established", definition, "--timeout", operator.Patience.String())
	before := u.Objects()
	lacks := func() bool {
		return regexp.MustCompile(`virtualservices\S* does not serve the versions \[v1\]`).MatchString(strings.Join(u.Levels()["error"], "\n"))
	}
	if !lacks() {
		t.Error("check before the installation does not name the version that is missing")
	}
	if out := u.Done("install", "-f", u.Values); !strings.Contains(out, "1 definitions of kinds exist already and stay as they are") {
		t.Errorf("install does not say that the definition stays:\n%s", out)
	}
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.FailsClosed("istio-istio-system")
	u.Namespace("shop", "istio-injection=enabled")
	u.Deploy("shop")
	route := func(version, name string) string {
		return strings.NewReplacer("networking.istio.io/v1", "networking.istio.io/"+version, `"a b"`, "web", "name: wrong", "name: "+name).Replace(operator.Invalid("shop"))
	}
	u.Apply(route("v1beta1", "right"))
	u.Kubectl("wait", "--for=condition=Accepted", "virtualservice/right", "-n", "shop", "--timeout", operator.Patience.String())
	old := strings.ReplaceAll(operator.Invalid("shop"), "networking.istio.io/v1", "networking.istio.io/v1beta1")
	if out, err := u.Applied(old); err == nil || !strings.Contains(out, `admission webhook "validation.istio.io" denied`) {
		t.Errorf("an object that is invalid, in the older version: %v\n%s", err, out)
	}
	if !lacks() {
		t.Error("check after the installation does not name the version that is missing")
	}

	file, err := mesh.Definitions(t.Context())
	u.Must(err)
	u.Kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
	if lacks() {
		t.Error("check still names a version that is there now")
	}
	u.Kubectl("wait", "--for=condition=Established", definition, "--timeout", operator.Patience.String())
	u.Until("the newer version", func() bool { _, err := u.Applied(route("v1", "newer")); return err == nil })
	u.Kubectl("wait", "--for=condition=Accepted", "virtualservice/newer", "-n", "shop", "--timeout", operator.Patience.String())
	u.Kubectl("delete", "namespace", "shop")
	u.Done("uninstall", "--crds")
	before = append(before, "apiservices.apiregistration.k8s.io /v1.networking.istio.io") // of the definition that has the version now
	slices.Sort(before)
	u.Unchanged(before)
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
	u.Namespace("shop", "istio.io/rev=canary")
	u.Namespace("plain")
	root := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	_, err := u.Applied(fmt.Sprintf(istioWebhook, root))
	if err != nil { // API servers of later versions check the roots
		root = u.Kubectl("config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}")
		u.Apply(fmt.Sprintf(istioWebhook, root))
	}
	t.Cleanup(func() {
		u.Kubectl("delete", "mutatingwebhookconfiguration", "istio-sidecar-injector", "--ignore-not-found")
	})
	before := u.Objects()
	theirs := func() string {
		return u.Kubectl("get", "mutatingwebhookconfiguration/istio-sidecar-injector", "-o", "jsonpath={.metadata.generation} {.webhooks[0].clientConfig.caBundle}")
	}
	was := theirs()
	u.Refused(1, "MutatingWebhookConfiguration istio-sidecar-injector (made by another tool)", "install", "-f", u.Values)
	u.Unchanged(before)
	if found := strings.Join(u.Levels()["error"], "\n"); !strings.Contains(found, "istio-sidecar-injector calls the service istio-system/istiod, which has no ready endpoint") {
		t.Errorf("check does not find the webhook of a control plane that is gone: %s", found)
	}
	u.Done("install", "-f", u.Values, "--revision", "canary")
	t.Cleanup(func() { u.Run("uninstall", "--revision", "canary", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector-canary"))
	u.Deploy("shop")
	if r := u.Restarted("shop"); r != "canary" {
		t.Errorf("the proxy has the revision %q", r)
	}
	u.Deploy("plain")
	for _, p := range u.Pods("plain") {
		if p.Injected {
			t.Errorf("the pod %s of a namespace without a label has a proxy", p.Name)
		}
	}
	u.Kubectl("delete", "deployment,service", "web", "-n", "shop")
	u.Kubectl("delete", "deployment,service", "web", "-n", "plain")
	if is := theirs(); is != was {
		t.Errorf("the webhook of Istio has changed: %s, before %s", is, was)
	}
	u.Done("uninstall", "--revision", "canary", "--crds")
	u.Unchanged(before)
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
	u.Namespace("shop", "istio-injection=enabled")
	u.Done("install", "-f", u.Values)
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	made := func(manifest string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), operator.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, u.C.Kubectl(), "--kubeconfig", u.C.Kubeconfig(), "create", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := made(largePod("large", 1_000_000, 200_000)); err != nil {
		t.Fatalf("a large pod: %v\n%.2000s", err, out)
	}
	u.Kubectl("wait", "--for=condition=Ready", "pod/large", "-n", "shop", "--timeout", operator.Patience.String())
	for name, manifest := range map[string]string{"annotated": largePod("annotated", 0, 262_000), "huge": largePod("huge", 1_500_000, 0)} {
		out, err := made(manifest)
		t.Logf("%s: %v %.300s", name, err, out)
	}
	for _, p := range u.Pods("shop") {
		if !p.Injected {
			t.Errorf("the pod %s has no proxy", p.Name)
		}
	}
}
