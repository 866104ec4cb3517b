package proof

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// web runs a server that only its service and its probe know, on a node. It stays when the node is lost.
func (s *stage) web(node string) (pod *core.Pod, service string) {
	s.Helper()
	s.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
  - name: main
    image: pilot.test/workload:v1
    args: [serve, --http=:8080]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`, node))
	pod = s.ready("web")
	object, err := s.api.CoreV1().Services(s.namespace).Get(s.Context(), "web", meta.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return pod, "http://" + object.Spec.ClusterIP
}

// answers waits until a way of asking works, or does not.
func (s *stage) answers(what string, want bool, ask func() (string, error)) {
	s.Helper()
	s.until(fmt.Sprintf("%s (answers: %v)", what, want), func(context.Context) error {
		if out, err := ask(); (err == nil) != want {
			return unmet(err, "%s", out)
		}
		return nil
	})
}

// conditionOf waits until the pod web is ready or not, and sees that it is the same container still.
func (s *stage) conditionOf(before *core.Pod, ready bool) {
	s.Helper()
	c := s.status("web", "main", fmt.Sprintf("web to be ready: %v", ready), func(c core.ContainerStatus) bool { return c.Ready == ready })
	if c.ContainerID != container(before, "main").ContainerID || c.RestartCount > 0 {
		s.Errorf("the container was restarted: %+v", c)
	}
}

// TestNodeDown: a node is cut off. It is found out; its pods run on, and this machine reaches them, but no pod elsewhere
// does. When the node is back everything is as before, without a restart.
func TestNodeDown(t *testing.T) {
	s := on(t)
	node := s.c.Node("node-1")
	pod, service := s.web(node.Name)
	s.apply(strings.Replace(manifest("asker", "command: [sleep, infinity]"), "spec:\n", "spec:\n  nodeName: node-0\n", 1))
	s.ready("asker")
	direct := "http://" + pod.Status.PodIP + ":8080"
	within := func() (string, error) {
		return s.try(t.Context(), "", "exec", "asker", "--", s.workload(), "call", "--fresh", "--timeout=1s", direct)
	}
	machine := func() (string, error) { return s.call("--fresh", "--timeout=1s", direct) }
	s.answers("from a pod", true, within)
	if err := node.Down(); err != nil {
		t.Fatal(err)
	}
	up := func() {
		if err := node.Up(); err != nil {
			t.Fatal(err)
		}
		s.until("the node to be ready again", func(ctx context.Context) error { return nodeReady(ctx, s, node.Name) })
	}
	defer up()
	s.answers("from a pod of another node", false, within)
	s.answers("from this machine", true, machine)
	s.until("the node to count as lost", func(ctx context.Context) error {
		if nodeReady(ctx, s, node.Name) == nil {
			return fmt.Errorf("it counts as ready")
		}
		return nil
	})
	if out, err := s.try(t.Context(), "", "exec", "web", "--", "true"); err == nil {
		t.Errorf("kubectl exec on a node that is down: %s", out)
	}
	s.answers("from this machine, of a lost node", true, machine)
	up()
	s.answers("from a pod, after", true, within)
	s.answers("through the service", true, func() (string, error) { return s.call("--fresh", "--timeout=1s", service) })
	s.conditionOf(pod, true)
}

// TestCutNetwork: a pod is taken from the network and given back. While it is cut, it is not ready and gets no requests.
func TestCutNetwork(t *testing.T) {
	s := on(t)
	node := s.c.Node("node-0")
	pod, service := s.web(node.Name)
	ask := func() (string, error) { return s.call("--fresh", "--timeout=1s", service) }
	s.answers("before", true, ask)
	if err := node.CutNetwork(s.namespace, "web"); err != nil {
		t.Fatal(err)
	}
	s.conditionOf(pod, false)
	// Refused, because no pod is left, rather than silence.
	s.until("the service to know", func(context.Context) error {
		if out, err := ask(); err == nil || !strings.Contains(out, "refused") {
			return unmet(err, "%s", out)
		}
		return nil
	})
	// Its processes are as alive as before.
	if out := s.kubectl("exec", "web", "--", "hostname"); strings.TrimSpace(out) != "web" {
		t.Errorf("kubectl exec: %q", out)
	}
	if err := node.RestoreNetwork(s.namespace, "web"); err != nil {
		t.Fatal(err)
	}
	s.conditionOf(pod, true)
	s.answers("after", true, ask)
}

// TestPause: a container's processes are frozen and resumed. A request that came while they were frozen is answered late.
func TestPause(t *testing.T) {
	s := on(t)
	node := s.c.Node("node-0")
	pod, service := s.web(node.Name)
	s.answers("before", true, func() (string, error) { return s.call("--fresh", "--timeout=1s", service) })
	if err := node.Pause(s.namespace, "web", "main"); err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	begin := time.Now()
	go func() {
		_, err := s.call("--fresh", "--timeout=60s", "http://"+pod.Status.PodIP+":8080")
		late <- err
	}()
	s.conditionOf(pod, false)
	select {
	case err := <-late:
		t.Errorf("a paused container answered after %s (%v)", time.Since(begin), err)
	default:
	}
	if err := node.Resume(s.namespace, "web", "main"); err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil {
		t.Errorf("the request that waited: %v", err)
	}
	s.conditionOf(pod, true)
	s.answers("after", true, func() (string, error) { return s.call("--fresh", "--timeout=1s", service) })
}
