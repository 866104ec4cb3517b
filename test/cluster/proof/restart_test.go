package proof

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/cluster/standard"
	"github.com/pilotmesh/pilot/test/kit/process"
)

// pinned are three pods of one node behind a service, with volumes on disk, in memory and of objects.
const pinned = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: %s}
      containers:
      - name: main
        image: pilot.test/workload:v1
        args: [serve, --http=:8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: objects, mountPath: /objects}]
      volumes:
      - {name: disk, emptyDir: {}}
      - {name: memory, emptyDir: {medium: Memory}}
      - {name: objects, projected: {sources: [{configMap: {name: kube-root-ca.crt}}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// TestNodeRestart: a node ends under running pods and leaves nothing on the machine; it starts again and runs the same pods
// again; and after those are deleted the machine is as it was before.
func TestNodeRestart(t *testing.T) {
	s := on(t)
	before := s.machine()
	node := s.c.Node("node-1")
	s.apply(fmt.Sprintf(pinned, node.Name))
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	pods := s.names("app=web")
	node.Stop()
	s.nothing("the node left", s.c.Devices()+"n1")
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	s.runAgain(pods)
	s.remove()
	s.same(before)
}

// TestNodeKilled: the process of a node is killed outright. Its pods die with it, and it leaves nothing that uses anything:
// no process, mount or link of a pod. Run again, it runs the same pods again, and leaves nothing at all when it ends.
func TestNodeKilled(t *testing.T) {
	s := on(t)
	before := s.machine()
	name, flags, err := s.c.PlanNode()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.c.RemoveNode(context.Background(), name); err != nil {
			t.Error(err)
		}
	}()
	flags = append(flags, "-images", s.imageMap())
	program := s.build("podrunner", "./cmd/podrunner")
	first := s.spawn(program, flags...)
	s.until(name+" to be ready", func(ctx context.Context) error { return nodeReady(ctx, s, name) })
	s.apply(fmt.Sprintf(pinned, name))
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	pods := s.names("app=web")
	first.Kill()
	bridge := s.c.Devices() + "n" + strings.TrimPrefix(name, "node-")
	s.nothing("after the kill there is", "process", "mount", "device "+bridge+"v")

	second := s.spawn(program, flags...)
	s.runAgain(pods)
	if err := second.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if end := second.State(); !end.Success() {
		t.Errorf("the node's process ended with %v", end)
	}
	s.nothing("the node left", bridge)
	s.remove()
	s.same(before)
}

// runAgain waits until pods of a node that started again are ready, each after one restart, and serve.
func (s *stage) runAgain(pods []string) {
	s.Helper()
	for _, name := range pods {
		c := s.status(name, "main", name+" to run again", func(c core.ContainerStatus) bool { return c.RestartCount > 0 && c.Ready })
		if last := c.LastTerminationState.Terminated; c.RestartCount != 1 || last == nil || last.Reason != "ContainerStatusUnknown" {
			s.Errorf("%s: %d restarts, last state %+v; want one, from an unknown state", name, c.RestartCount, last)
		}
	}
	s.leads(len(pods))
}

// names are the names of the pods that labels select.
func (s *stage) names(labels string) []string {
	s.Helper()
	return strings.Fields(s.kubectl("get", "pods", "-l", labels, "-o", "jsonpath={.items[*].metadata.name}"))
}

// machine is what the cluster has on the machine.
func (s *stage) machine() []string {
	s.Helper()
	all, err := standard.Machine(s.c)
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// nothing waits until the machine has nothing with one of the words that the cluster did not have without pods.
func (s *stage) nothing(what string, words ...string) {
	s.Helper()
	var control []string // the control plane's processes run all the time
	for _, line := range s.machine() {
		if strings.HasPrefix(line, "process ") && !strings.Contains(line, " in /sys/fs/cgroup") {
			control = append(control, line)
		}
	}
	s.until(what+" no more", func(context.Context) error {
		for _, line := range s.machine() {
			for _, word := range words {
				if strings.Contains(line, word) && !slices.Contains(control, line) {
					return fmt.Errorf("%s: %s", what, line)
				}
			}
		}
		return nil
	})
}

// same waits until the machine is as it was before.
func (s *stage) same(before []string) {
	s.Helper()
	s.until("the machine to be as before", func(context.Context) error {
		now := s.machine()
		var differences []string
		for _, line := range now {
			if !slices.Contains(before, line) {
				differences = append(differences, "new: "+line)
			}
		}
		for _, line := range before {
			// Services of the test before may just have been going.
			if !slices.Contains(now, line) && !strings.HasPrefix(line, "nft ") {
				differences = append(differences, "gone: "+line)
			}
		}
		if len(differences) > 0 {
			return fmt.Errorf("it differs:\n%s", strings.Join(differences, "\n"))
		}
		return nil
	})
}

// imageMap is a file with the one image that pinned pods use.
func (s *stage) imageMap() string {
	path := filepath.Join(s.TempDir(), "images.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "images: [{prefix: pilot.test/workload, program: %q}]\n", s.workload()), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// build builds a program of the module podrunner.
func (s *stage) build(name, source string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), name)
	cmd := exec.CommandContext(s.Context(), "go", "build", "-o", path, source)
	cmd.Dir = filepath.Join("..", "..", "podrunner")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("building %s: %v\n%s", source, err, out)
	}
	return path
}

// spawn starts a program that ends with this process.
func (s *stage) spawn(program string, args ...string) *process.Process {
	s.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = s.Output(), s.Output()
	p, err := process.Start(cmd)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.Kill) // if the test has not ended it
	return p
}
