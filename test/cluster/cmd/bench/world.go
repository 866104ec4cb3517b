package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/cluster/standard"
	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	// smallWorld and bigWorld are numbers of services. Each has two pods.
	smallWorld, bigWorld = 1000, 10_000
	// namespaces is the number of namespaces over which services are spread.
	namespaces = 20
	// makers is how many requests that make objects run at a time.
	makers = 32
	// patience is how long anything is waited for. It is no bar: a case that runs into it could not run.
	patience = 2 * time.Minute
)

// world is an API server with services, and the control plane that reads it.
type world struct {
	cluster  *cluster.Cluster
	client   kubernetes.Interface
	root     string
	dir      string
	services int // how many there are
	plane    *plane
}

// newWorld starts an API server and makes the small world.
func newWorld(ctx context.Context) (*world, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	w := &world{root: root}
	if w.cluster, err = standard.Start(ctx, cluster.Options{}); err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) prepare(ctx context.Context) (err error) {
	if w.dir, err = os.MkdirTemp("", "pilot-bench-"); err != nil {
		return err
	}
	fast := w.cluster.Config()
	fast.QPS, fast.Burst = 5000, 5000
	if w.client, err = kubernetes.NewForConfig(fast); err != nil {
		return err
	}
	definitions, err := mesh.Definitions(ctx)
	if err != nil {
		return err
	}
	if err := w.kubectl(ctx, "", "apply", "--server-side", "-f", definitions); err != nil {
		return err
	}
	if err := w.kubectl(ctx, "", "create", "namespace", mesh.ControlNamespace); err != nil {
		return err
	}
	for n := range namespaces {
		if err := w.kubectl(ctx, "", "create", "namespace", namespaceOf(n)); err != nil {
			return err
		}
		if err := w.kubectl(ctx, "", "wait", "--for=create", "-n", namespaceOf(n), "serviceaccount/default", "--timeout=60s"); err != nil {
			return err
		}
	}
	if err := w.cluster.FreezeControllers(); err != nil {
		return err
	}
	if err := w.grow(ctx, smallWorld); err != nil {
		return err
	}
	w.plane, err = newPlane(ctx, w)
	return err
}

func (w *world) close() error {
	if w.plane != nil {
		w.plane.stop()
	}
	err := errors.Join(w.cluster.ThawControllers(), w.cluster.Close())
	return errors.Join(err, os.RemoveAll(w.dir))
}

func (w *world) kubectl(ctx context.Context, input string, args ...string) error {
	cmd := exec.CommandContext(ctx, w.cluster.Kubectl(), append([]string{"--kubeconfig", w.cluster.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func namespaceOf(service int) string { return fmt.Sprintf("ns-%d", service%namespaces) }
func serviceName(n int) string       { return fmt.Sprintf("svc-%d", n) }
func podName(service, of, generation int) string {
	return fmt.Sprintf("svc-%d-%d-%d", service, of, generation)
}

// address is the address of a pod; generations of one pod have different ones.
func address(service, of, generation int) string {
	n := service*2 + of
	return fmt.Sprintf("10.%d.%d.%d", 128+generation%64, n>>8, n&0xff)
}

// grow makes services, with two pods each, until there are so many.
func (w *world) grow(ctx context.Context, services int) error {
	begin := time.Now()
	from := w.services
	w.services = services
	err := parallel(services-from, func(i int) error {
		n := from + i
		if err := w.makeService(ctx, n); err != nil {
			return err
		}
		for of := range 2 {
			if err := w.makePod(ctx, n, of, 0); err != nil {
				return err
			}
		}
		_, err := w.client.DiscoveryV1().EndpointSlices(namespaceOf(n)).Create(ctx, sliceOf(n, 0, 0), meta.CreateOptions{})
		return err
	})
	fmt.Printf("# %d services with two pods each were made in %v\n", services-from, time.Since(begin).Round(time.Second))
	return err
}

// parallel calls fn for 0 to n-1, with several goroutines, and returns the first error.
func parallel(n int, fn func(i int) error) error {
	work := make(chan int)
	failed := make(chan error, makers)
	var group sync.WaitGroup
	for range makers {
		group.Go(func() {
			for i := range work {
				if err := fn(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	var err error
	for i := 0; i < n && err == nil; i++ {
		select {
		case work <- i:
		case err = <-failed:
		}
	}
	close(work)
	group.Wait()
	close(failed)
	return errors.Join(err, <-failed)
}

func (w *world) makeService(ctx context.Context, n int) error {
	_, err := w.client.CoreV1().Services(namespaceOf(n)).Create(ctx, &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: serviceName(n)},
		Spec: core.ServiceSpec{
			Selector: map[string]string{"app": serviceName(n)},
			Ports:    []core.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, meta.CreateOptions{})
	return err
}

// makePod makes a pod that runs and is ready.
func (w *world) makePod(ctx context.Context, service, of, generation int) error {
	pods := w.client.CoreV1().Pods(namespaceOf(service))
	p, err := pods.Create(ctx, &core.Pod{
		ObjectMeta: meta.ObjectMeta{
			Name:   podName(service, of, generation),
			Labels: map[string]string{"app": serviceName(service), "version": "v1", "pod-template-hash": "5b6459f55d"},
		},
		Spec: core.PodSpec{NodeName: "node-0", Containers: []core.Container{{Name: "app", Image: "none", Ports: []core.ContainerPort{{ContainerPort: 8080}}}}},
	}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	p.Status = core.PodStatus{
		Phase: core.PodRunning, PodIP: address(service, of, generation), PodIPs: []core.PodIP{{IP: address(service, of, generation)}},
		Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}},
	}
	_, err = pods.UpdateStatus(ctx, p, meta.UpdateOptions{})
	return err
}

// removePod removes a pod as a kubelet does whose grace period is over.
func (w *world) removePod(ctx context.Context, service, of, generation int) error {
	now := int64(0)
	return w.client.CoreV1().Pods(namespaceOf(service)).Delete(ctx, podName(service, of, generation), meta.DeleteOptions{GracePeriodSeconds: &now})
}

// sliceOf is the endpoint slice that the controller makes for two pods of some generations.
func sliceOf(service int, generations ...int) *discovery.EndpointSlice {
	name, port, yes := "http", int32(8080), true
	s := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{
			Name:   serviceName(service) + "-1",
			Labels: map[string]string{discovery.LabelServiceName: serviceName(service), discovery.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: &name, Port: &port}},
	}
	for of, generation := range generations {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{
			Addresses:  []string{address(service, of, generation)},
			Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes},
			TargetRef:  &core.ObjectReference{Kind: "Pod", Namespace: namespaceOf(service), Name: podName(service, of, generation)},
		})
	}
	return s
}

// setReady says in the slice of a service whether its first pod is ready.
func (w *world) setReady(ctx context.Context, service int, ready bool) error {
	patch := fmt.Sprintf(`[{"op":"replace","path":"/endpoints/0/conditions/ready","value":%t},{"op":"replace","path":"/endpoints/0/conditions/serving","value":%t}]`, ready, ready)
	_, err := w.client.DiscoveryV1().EndpointSlices(namespaceOf(service)).Patch(ctx, serviceName(service)+"-1", types.JSONPatchType, []byte(patch), meta.PatchOptions{})
	return err
}

// build compiles a program of the repository.
func (w *world) build(ctx context.Context, program string) (string, error) {
	return testbed.Build(ctx, w.root, program, w.dir)
}
