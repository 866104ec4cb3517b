// Package proof proves that test clusters work as documented: the control plane, nodes and network together run
// what Kubernetes runs, by the real kubectl where people would use it.
//
// It holds tests only. They share one cluster of two nodes; each has a namespace of its own. Faults that concern all are undone by the
// test that made them, and tests do not run side by side.
package proof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
)

// shared is the cluster of this test binary.
var shared clustertest.Shared

func TestMain(m *testing.M) {
	if os.Getenv(victim) != "" {
		os.Exit(bePrey())
	}
	// Short, so that the loss of a node takes seconds; long enough for a machine that is busy with other packages.
	os.Exit(shared.Main(m, cluster.Options{Nodes: 2, NodeGrace: 16 * time.Second, Eviction: 3 * time.Second}))
}

// stage is one test's namespace in the cluster.
type stage struct {
	*testing.T
	c         *cluster.Cluster
	api       kubernetes.Interface
	namespace string
}

// on makes a namespace for a test. It is deleted at the end; if the test failed, its pods and events are shown before.
func on(t *testing.T) *stage {
	t.Helper()
	c := shared.For(t)
	// A new name each time: the end of a namespace takes five seconds at least, and no test waits for it.
	named := &core.Namespace{ObjectMeta: meta.ObjectMeta{GenerateName: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) + "-"}}
	made, err := c.Client().CoreV1().Namespaces().Create(t.Context(), named, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, c: c, api: c.Client(), namespace: made.Name}
	t.Cleanup(func() {
		if t.Failed() {
			for _, what := range []string{"pods", "events"} {
				out, _ := s.try(context.Background(), "", "get", what, "-o", "wide")
				t.Logf("%s:\n%s", what, out)
			}
		}
		s.remove()
	})
	s.until("the service account", func(ctx context.Context) error {
		_, err := s.api.CoreV1().ServiceAccounts(s.namespace).Get(ctx, "default", meta.GetOptions{})
		return err
	})
	return s
}

// remove deletes the namespace, and waits until its pods are gone from the machine: the next test wants it for itself.
func (s *stage) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pods := s.api.CoreV1().Pods(s.namespace)
	before, err := pods.List(ctx, meta.ListOptions{})
	if err != nil {
		s.Errorf("listing pods: %v", err)
		return
	}
	// What makes pods goes first, or it would make new ones.
	out, err := s.try(ctx, "", "delete", "deployments,replicasets,statefulsets,jobs,pods", "--all", "--force", "--grace-period=0", "--wait=false")
	if err != nil {
		s.Errorf("deleting everything: %v\n%s", err, out)
	}
	if err := s.api.CoreV1().Namespaces().Delete(ctx, s.namespace, meta.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.Errorf("deleting the namespace: %v", err)
	}
	err = poll(ctx, func() error {
		left, err := pods.List(ctx, meta.ListOptions{})
		if err != nil || len(left.Items) > 0 {
			return unmet(err, "%d pods are there", len(left.Items))
		}
		for _, p := range before.Items {
			if folders, _ := filepath.Glob(filepath.Join(s.c.Dir(), "*", "pods", string(p.UID))); len(folders) > 0 {
				return fmt.Errorf("of pod %s there is %v", p.Name, folders)
			}
		}
		return nil
	})
	if err != nil {
		s.Errorf("deleting the pods of %s: %v", s.namespace, err)
	}
}

// poll repeats f until it succeeds or ctx ends; then it returns what f said last.
func poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// unmet returns the error of an unmet expectation, joined with err, which says why it could not be observed.
func unmet(err error, format string, args ...any) error {
	return errors.Join(err, fmt.Errorf(format, args...))
}

// patience is for what takes a moment on an idle machine.
const patience = 90 * time.Second

func (s *stage) until(what string, f func(context.Context) error) {
	s.Helper()
	s.within(patience, what, f)
}

func (s *stage) within(limit time.Duration, what string, f func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	begin := time.Now()
	var last error // but one
	err := poll(ctx, func() error {
		err := f(ctx)
		if err != nil {
			last = err
		}
		return err
	})
	if err != nil {
		s.Fatalf("waiting for %s: %v", what, err)
	}
	if took := time.Since(begin); took > time.Second {
		s.Logf("%.1f s for %s, after %v", took.Seconds(), what, last) // shown when the test fails
	}
}

// kubectl runs the real one in the test's namespace and returns its output.
func (s *stage) kubectl(args ...string) string {
	s.Helper()
	out, err := s.try(s.Context(), "", args...)
	if err != nil {
		s.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (s *stage) try(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.c.Kubectl(), append([]string{"--kubeconfig", s.c.Kubeconfig(), "--namespace", s.namespace}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// apply writes objects as YAML.
func (s *stage) apply(yaml string) {
	s.Helper()
	if out, err := s.try(s.Context(), yaml, "apply", "-f", "-"); err != nil {
		s.Fatalf("kubectl apply: %v\n%s\n%s", err, out, yaml)
	}
}

func sample(name string) string { return filepath.Join("..", "samples", name+".yaml") }

// pod returns a pod as it is now.
func (s *stage) pod(ctx context.Context, name string) (*core.Pod, error) {
	return s.api.CoreV1().Pods(s.namespace).Get(ctx, name, meta.GetOptions{})
}

// ready waits until a pod is.
func (s *stage) ready(name string) *core.Pod {
	s.Helper()
	var pod *core.Pod
	s.until("pod "+name+" to be ready", func(ctx context.Context) error {
		var err error
		if pod, err = s.pod(ctx, name); err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == core.PodReady && c.Status == core.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("phase %s, conditions %v", pod.Status.Phase, pod.Status.Conditions)
	})
	return pod
}

// container returns the status of a pod's container.
func container(pod *core.Pod, name string) core.ContainerStatus {
	for _, all := range [][]core.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, c := range all {
			if c.Name == name {
				return c
			}
		}
	}
	return core.ContainerStatus{}
}

// status waits until a container's status is as wanted.
func (s *stage) status(pod, name, what string, ok func(core.ContainerStatus) bool) core.ContainerStatus {
	s.Helper()
	var c core.ContainerStatus
	s.until(what, func(ctx context.Context) error {
		p, err := s.pod(ctx, pod)
		if err != nil {
			return err
		}
		if c = container(p, name); !ok(c) {
			return fmt.Errorf("its status is %+v", c)
		}
		return nil
	})
	return c
}

func containerEnded(c core.ContainerStatus) bool { return c.State.Terminated != nil }

// manifest is a pod with one container named main.
func manifest(name, container string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec:\n  terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    image: pilot.test/workload:v1\n    %s\n",
		name, name, strings.ReplaceAll(strings.TrimSpace(container), "\n", "\n    "))
}

// asker runs a pod from which to call others, and returns how.
func (s *stage) asker() func(args ...string) (string, error) {
	s.Helper()
	s.apply(manifest("asker", "command: [sleep, infinity]"))
	s.ready("asker")
	return func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
		defer cancel()
		out, err := s.try(ctx, "", append([]string{"exec", "asker", "--", s.workload(), "call"}, args...)...)
		if err != nil {
			err = errors.Join(err, ctx.Err())
		}
		return out, err
	}
}

// workload is the sample program's path, which is the same in pods.
func (s *stage) workload() string {
	path, err := filepath.Abs("../../../bin/workload")
	if err != nil {
		s.Fatal(err)
	}
	return path
}

// call runs the sample program on the machine.
func (s *stage) call(args ...string) (string, error) {
	out, err := exec.CommandContext(s.Context(), s.workload(), append([]string{"call"}, args...)...).CombinedOutput()
	return string(out), err
}
