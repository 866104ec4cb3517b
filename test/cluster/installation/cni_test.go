package installation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/operator"
	"github.com/pilotmesh/pilot/test/podrunner"
	"github.com/pilotmesh/pilot/test/podrunner/cni"
	podlife "github.com/pilotmesh/pilot/test/podrunner/pod"
)

// pluginImage builds pilot-cni, and returns the image that has it.
func pluginImage(ctx context.Context, root string) (podrunner.Images, error) {
	const at = "/usr/local/bin/pilot-cni" // in the image
	program := filepath.Join(root, "bin", "pilot-cni")
	if err := cluster.BuildProgram(ctx, program, root, "./cmd/pilot-cni"); err != nil {
		return podrunner.Images{}, err
	}
	return podrunner.NewImages(podrunner.Image{Prefix: "pilot.test/pilot-cni", Program: at, Files: map[string]string{at: program}})
}

// The configuration of the node's own network, which the plugin is put behind.
const (
	networkFile   = "10-podrunner.conflist"
	networkConfig = `{"cniVersion": "1.0.0", "name": "podrunner", "plugins": [{"type": "podrunner"}]}`
)

// podManifest is a pod on the node with plugins: its name, its labels, and the Service for it.
const podManifest = `
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: walled}
spec: {selector: {app: %[1]s}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: walled, labels: {app: %[1]s, sidecar.istio.io/inject: "%[2]v"}}
spec:
  nodeSelector: {plugins: "yes"}
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: "pilot.test/workload:v1", args: [serve, "--http=:8080"], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
`

// withPlugins adds a node that calls plugins, and returns its folders for configurations, plugins and the agent's socket.
func (u *user) withPlugins() (conf, bin, socket string) {
	u.Helper()
	dir := u.TempDir()
	conf, bin, socket = filepath.Join(dir, "net.d"), filepath.Join(dir, "bin"), filepath.Join(dir, "run")
	for _, d := range []string{conf, bin, socket} {
		u.Must(os.Mkdir(d, 0o755))
	}
	u.Must(os.WriteFile(filepath.Join(conf, networkFile), []byte(networkConfig), 0o600))
	n, err := u.C.AddNode(func(o *podrunner.Options) {
		o.Labels = map[string]string{"plugins": "yes"}
		o.CNI = cni.Host{ConfDir: conf, BinDir: bin}
		o.Policy = &podlife.Policy{BackOff: time.Second, MaxBackOff: time.Second, ResetBackOff: time.Minute}
	})
	u.Must(err)
	u.Cleanup(func() { u.Must(u.C.RemoveNode(context.Background(), n.Name)) })
	return conf, bin, socket
}

// ready waits until a pod of the walled namespace is ready.
func (u *user) ready(name string) {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operator.Patience)
	defer cancel()
	if out, err := u.Tried(ctx, "wait", "--for=condition=Ready", "pod/"+name, "-n", "walled", "--timeout", (operator.Patience / 2).String()); err != nil {
		u.Fatalf("pod %s: %v\n%s\n%s\n%s", name, err, out, u.Kubectl("describe", "pod", name, "-n", "walled"),
			u.Kubectl("logs", "-l", "k8s-app=istio-cni-node", "-n", "istio-system", "--tail=100"))
	}
}

// ask lets a pod send a request to a service of its namespace, and returns the answer.
func (u *user) ask(from, to string) string {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operator.Patience)
	defer cancel()
	out, _ := u.Tried(ctx, "exec", "-n", "walled", from, "-c", "app", "--", "/proc/1/exe", "call", "-o=answers", "--fresh", "http://"+to+".walled") //nolint:errcheck // then the text is no answer
	return out
}

// plugin installs the plugin.
func (u *user) plugin(conf, bin, socket string) {
	u.Helper()
	u.Cleanup(func() { u.Run("uninstall", "--chart", "pilot-cni") })
	u.Done("install", "--chart", "pilot-cni", "--set", "image=pilot.test/pilot-cni:v1", "--set", "cniConfDir="+conf, "--set", "cniBinDir="+bin,
		"--set", "runDir="+socket, "--set", "nodeSelector.plugins=yes")
}

// taints returns the keys of the taints of the node with plugins.
func (u *user) taints() string {
	u.Helper()
	return u.Kubectl("get", "nodes", "-l", "plugins=yes", "-o", "jsonpath={.items[*].spec.taints[*].key}")
}

// TestPlugin: in a namespace that forbids NET_ADMIN, a pod that started before the plugin is repaired, a new one is captured when it starts, and they
// speak mutual TLS; a pod outside the mesh is not touched; and the plugin goes away with its DaemonSet. A taint keeps pods away until the plugin is ready.
func TestPlugin(t *testing.T) {
	u := on(t)
	conf, bin, socket := u.withPlugins()
	u.Namespace("walled", "pod-security.kubernetes.io/enforce=baseline", "istio-injection=enabled")
	u.Done("install", "-f", u.Values, "--set", "cni.enabled=true", "--set", "taint.enabled=true")
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.Apply("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: walled}\nspec: {mtls: {mode: STRICT}}\n")

	u.Apply(fmt.Sprintf(podManifest, "early", true))
	u.Until("a validation that fails", func() bool {
		return strings.Contains(u.Kubectl("get", "pod/early", "-n", "walled", "-o", "jsonpath={.status.initContainerStatuses[0]}"), `"exitCode":126`)
	})
	if errors := u.Levels()["error"]; len(errors) != 1 || !strings.Contains(errors[0], "the cluster has none") {
		t.Errorf("pilotctl check without the plugin: %v", errors)
	}
	u.Kubectl("taint", "nodes", "-l", "plugins=yes", "cni.istio.io/not-ready:NoSchedule")
	u.plugin(conf, bin, socket)
	u.Until("no taint with the plugin", func() bool { return u.taints() == "" })
	u.Apply(fmt.Sprintf(podManifest, "late", true))
	u.Apply(fmt.Sprintf(podManifest, "outside", false))
	for _, name := range []string{"late", "outside", "early"} {
		u.ready(name)
	}
	u.repaired()
	for _, way := range [][2]string{{"late", "early"}, {"early", "late"}} {
		if answer := u.ask(way[0], way[1]); !strings.Contains(answer, "spiffe://cluster.local/ns/walled/") {
			t.Errorf("%s to %s: no client certificate of the mesh:\n%s", way[0], way[1], answer)
		}
	}
	if answer := u.ask("outside", "late"); strings.Contains(answer, `"host":"late.walled"`) {
		t.Errorf("a pod without a certificate gets an answer:\n%s", answer)
	}
	if answer := u.ask("outside", "outside"); !strings.Contains(answer, `"host":"outside.walled"`) {
		t.Errorf("the pod outside the mesh does not reach itself:\n%s", answer)
	}
	if out, _ := u.Run("check"); strings.Contains(out, "NET_ADMIN") || !strings.Contains(out, "captures the traffic of pods on 1 nodes") {
		t.Errorf("pilotctl check with the plugin:\n%s", out)
	}

	u.Done("upgrade", "--chart", "pilot-cni", "--set", "logging.level=debug") // the folders of the installation stay in force
	u.Done("uninstall", "--chart", "pilot-cni")
	u.Until("the end of the plugin", func() bool {
		text, err := os.ReadFile(filepath.Join(conf, networkFile))
		_, gone := os.Stat(filepath.Join(bin, "pilot-cni"))
		return err == nil && !strings.Contains(string(text), "pilot-cni") && os.IsNotExist(gone)
	})
}

// repaired checks that the pod early was repaired, and that the pod late was captured when it started.
func (u *user) repaired() {
	u.Helper()
	events := u.Kubectl("get", "events", "-n", "walled", "-o", `jsonpath={range .items[*]}{.reason} {.involvedObject.name}{"\n"}{end}`)
	if !strings.Contains(events, "CaptureRepair early") || strings.Contains(events, "CaptureRepair late") {
		u.Errorf("the events of repairs:\n%s", events)
	}
	if n := u.Kubectl("get", "pod/late", "-n", "walled", "-o", "jsonpath={.status.initContainerStatuses[0].restartCount}"); n != "0" {
		u.Errorf("the pod late was not captured when it started: its validation has been started again %s times", n)
	}
}
