package repair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// podText is a pod of the mesh with a state of its validation container.
const podText = `
metadata: {annotations: {sidecar.istio.io/status: "{}"}, %s}
spec: {initContainers: [{name: istio-validation}], containers: [{name: istio-proxy}]}
status: {phase: %s, initContainerStatuses: [{name: other, state: {terminated: {exitCode: 126}}}, {name: istio-validation, %s}]}
`

// TestBroken is the table of pods that are repaired.
func TestBroken(t *testing.T) {
	for _, c := range []struct {
		name, more, phase, state string
		broken                   bool
	}{
		{"has just failed", "", "Pending", "state: {terminated: {exitCode: 126}}", true},
		{"waits for its next attempt", "", "Pending", "state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 126}}", true},
		{"tries again", "", "Pending", "state: {running: {}}, lastState: {terminated: {exitCode: 126}}", true},
		{"is repaired", "", "Running", "state: {terminated: {exitCode: 0}}, lastState: {terminated: {exitCode: 126}}", false},
		{"has not tried", "", "Pending", "state: {waiting: {reason: PodInitializing}}", false},
		{"tries for the first time", "", "Pending", "state: {running: {}}", false},
		{"fails for another reason", "", "Pending", "state: {terminated: {exitCode: 2}}", false},
		{"is being deleted", "deletionTimestamp: 2026-01-01T00:00:00Z", "Pending", "state: {terminated: {exitCode: 126}}", false},
		{"was never to start again", "", "Failed", "state: {terminated: {exitCode: 126}}", true},
	} {
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(fmt.Appendf(nil, podText, c.more, c.phase, c.state), pod); err != nil {
			t.Fatal(err)
		}
		if isBroken(pod) != c.broken {
			t.Errorf("a pod that %s: broken %v", c.name, !c.broken)
		}
	}
	outside := &corev1.Pod{}
	outside.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "istio-validation", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 126}}}}
	if isBroken(outside) {
		t.Error("a pod outside the mesh is to be repaired")
	}
}

// TestFind finds the process of a pod by the names that container runtimes give to cgroups.
func TestFind(t *testing.T) {
	const uid = "6f6e2a10-8a2f-4f5e-9d0a-0c1b2a3d4e5f"
	for cgroup, found := range map[string]bool{
		"0::/kubepods/burstable/pod" + uid + "/0123":                                                              true,
		"0::/../../kubelet-kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-0123.scope": true,
		"11:memory:/kubepods/pod" + uid + "/0123\n0::/":                                                           true,
		"0::/system.slice/kubelet.service":                                                                        false,
	} {
		proc := t.TempDir()
		for pid, text := range map[string]string{"1": "0::/init.scope", "77": cgroup, "self": cgroup} {
			if err := errors.Join(os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o755), os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte(text), 0o600),
				os.WriteFile(filepath.Join(proc, pid, "ns", "net"), []byte(pid), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		f, err := find(proc, uid)
		switch {
		case found && (err != nil || f.Name() != filepath.Join(proc, "77", "ns", "net")):
			t.Errorf("%s: %v, %v", cgroup, f, err)
		case !found && !errors.Is(err, errNoProcess):
			t.Errorf("%s: %v", cgroup, err)
		}
		if f != nil {
			_ = f.Close()
		}
	}
}
