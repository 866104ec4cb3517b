package kubesource

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/agent/cni/node"
	"github.com/pilotmesh/pilot/internal/agent/cni/repair"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
)

// meshPod is a pod of the mesh on a node that does not exist. Nothing but the test changes its status.
const meshPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {sidecar.istio.io/status: "{}"}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  initContainers: [{name: istio-validation, image: x}]
  containers: [{name: istio-proxy, image: x}]
---`

// failed is a status whose validation ended with an exit code.
const failed = `{"status": {"phase": "Pending", "initContainerStatuses": [{"name": "istio-validation", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
"state": {"terminated": {"exitCode": %d}}}]}}`

// pluginRole returns the ClusterRole of the chart pilot-cni under another name, as a golden file has it.
func (p *place) pluginRole(golden, name string) string {
	p.Helper()
	root, err := binaries.Root()
	p.must(err)
	a, err := txtar.ParseFile(filepath.Join(root, "internal", "ctl", "install", "testdata", golden))
	p.must(err)
	for _, f := range a.Files {
		for document := range strings.SplitSeq(string(f.Data), "\n---\n") {
			if f.Name == "output.yaml" && strings.Contains(document, "kind: ClusterRole\n") {
				return strings.Replace(document, "  name: istio-cni-node-istio-system\n", "  name: "+name+"\n", 1)
			}
		}
	}
	p.Fatalf("%s has no ClusterRole", golden)
	return ""
}

// repairs runs the repair of pods of a node, with the rights that the chart gives.
func (p *place) repairs(mode repair.Mode, golden, on string) {
	p.Helper()
	user := p.namespace + "-" + string(mode)
	client, err := kubeclient.NewCore(p.as(user, p.pluginRole(golden, user)))
	p.must(err)
	p.Cleanup(func() { p.kubectl("", "delete", "clusterrole,clusterrolebinding", user) })
	log := slog.New(slog.DiscardHandler)
	pods, err := node.NewPods(client, on)
	p.must(err)
	c := repair.New(client, pods, nil, repair.Settings{Mode: mode, Key: "example.com/broken", Value: "true", Proc: os.DevNull, Node: on, Source: "pilot-cni"}, log)
	p.must(c.Start())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- pods.Run(ctx) }()
	go func() { ended <- c.Run(ctx) }()
	p.Cleanup(func() {
		cancel()
		for range 2 {
			p.must(<-ended)
		}
	})
}

// TestRepairs: a pod that started without rules is deleted or labelled, with an Event; another pod, whose validation failed otherwise, stays as it is.
func TestRepairs(t *testing.T) {
	p := on(t)
	for mode, golden := range map[repair.Mode]string{repair.Delete: "cni.txtar", repair.Label: "cni-label.txtar"} {
		host := p.namespace + "-" + string(mode)
		broken, other := "broken-"+string(mode), "other-"+string(mode)
		p.repairs(mode, golden, host)
		p.apply(fmt.Sprintf(meshPod, broken, host) + fmt.Sprintf(meshPod, other, host))
		p.kubectl("", "patch", "pod", other, "--subresource=status", "--type=strategic", "-p", fmt.Sprintf(failed, 2))
		p.kubectl("", "patch", "pod", broken, "--subresource=status", "--type=strategic", "-p", fmt.Sprintf(failed, 126))
		p.until("the repair: "+string(mode), func() bool {
			if mode == repair.Delete {
				return p.output("get", "pod", broken, "--ignore-not-found", "-o", "name") == ""
			}
			return p.output("get", "pod", broken, "-o", `jsonpath={.metadata.labels.example\.com/broken}`) == "true"
		})
		p.until("the Event of the repair", func() bool {
			return strings.Contains(p.output("get", "events", "--field-selector", "reason=CaptureRepair", "-o", "name", "--ignore-not-found"), "event/"+broken)
		})
		if labels := p.output("get", "pod", other, "-o", "jsonpath={.metadata.labels}"); labels != "" {
			t.Errorf("the pod whose validation failed otherwise has the labels %s", labels)
		}
	}
}
