package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/testbed"
)

// envoysCase applies a VirtualService with kubectl, and waits until each of the Envoys has acknowledged it.
func envoysCase(ctx context.Context, w *world) error {
	const envoys, edits = 20, 50
	if err := w.plane.ensure(ctx); err != nil {
		return err
	}
	// Envoys that listen at the ports of 1,000 services would need more memory than a small machine has.
	if err := w.kubectl(ctx, sidecarOfFirst, "apply", "-f", "-"); err != nil {
		return err
	}
	agents, err := w.startEnvoys(ctx, envoys)
	defer func() {
		var ending sync.WaitGroup
		for _, a := range agents {
			ending.Go(func() { a.End(syscall.SIGTERM) })
		}
		ending.Wait()
	}()
	if err != nil {
		return err
	}
	// kubectl starts, asks what the server has, and reads the object before it sends its change. The second figures are from there on.
	kubectl := func(routes string) error { return w.kubectl(ctx, routes, "apply", "-f", "-") }
	whole, share, err := w.editForEnvoys(ctx, envoys, edits, kubectl)
	if err != nil {
		return err
	}
	show("envoys/kubectl-to-acknowledged", "ms", 150, whole...)
	show("envoys/after-kubectl", "ms", 25, share...)
	whole, share, err = w.editForEnvoys(ctx, envoys, edits, func(routes string) error {
		return w.client.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath("/apis/networking.istio.io/v1/namespaces/ns-0/virtualservices/first").
			Param("fieldManager", "kubectl").Param("force", "true").Body([]byte(routes)).Do(ctx).Error()
	})
	show("envoys/change-to-acknowledged", "ms", 150, whole...)
	show("envoys/after-change", "ms", 25, share...)
	return err
}

// editForEnvoys applies a VirtualService again and again. It returns how long it took until all Envoys had acknowledged each change, from
// its beginning and from its end.
func (w *world) editForEnvoys(ctx context.Context, envoys, edits int, apply func(routes string) error) (whole, share []float64, err error) {
	for i := range edits {
		begin := time.Now()
		if err := apply(routesOfFirst(i + 1)); err != nil {
			return nil, nil, err
		}
		applied := time.Now()
		within, cancel := context.WithTimeout(ctx, patience)
		settled, err := w.plane.AwaitSettled(within, begin)
		cancel()
		if err != nil {
			return nil, nil, err
		}
		if settled.Told != envoys {
			return nil, nil, fmt.Errorf("edit %d was for %d proxies, want %d", i, settled.Told, envoys)
		}
		whole = append(whole, millis(settled.Took))
		// The API server notifies its watchers before it answers, so this can be 0.
		share = append(share, millis(max(0, settled.Took-applied.Sub(begin))))
	}
	return whole, share, nil
}

const sidecarOfFirst = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: ns-0}
spec:
  egress: [{hosts: [./svc-0.ns-0.svc.cluster.local, ./svc-20.ns-0.svc.cluster.local]}]
`

func routesOfFirst(timeout int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: first, namespace: ns-0}
spec:
  hosts: [svc-0.ns-0.svc.cluster.local]
  http: [{timeout: %ds, route: [{destination: {host: svc-20.ns-0.svc.cluster.local}}]}]
`, timeout)
}

// startEnvoys starts sidecars in the first namespace and waits until they are ready.
func (w *world) startEnvoys(ctx context.Context, n int) ([]*testbed.Agent, error) {
	binary, _, err := envoy.Find(ctx, w.root)
	if err != nil {
		return nil, err
	}
	agent, err := w.build(ctx, "pilot-agent")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(w.dir, "agents")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var agents []*testbed.Agent
	for i := range n {
		a, err := testbed.StartAgent(testbed.AgentOptions{Binary: agent, Envoy: binary, Args: []string{"--terminationDrainDuration=0s"}},
			dir, testbed.Node{Name: fmt.Sprintf("envoy-%d", i), Namespace: "ns-0", IP: fmt.Sprintf("127.9.0.%d", i+1), Discovery: w.plane.grpc})
		if err != nil {
			return agents, err
		}
		agents = append(agents, a)
	}
	for _, a := range agents {
		within, cancel := context.WithTimeout(ctx, patience)
		err := a.AwaitReady(within)
		cancel()
		if err != nil {
			return agents, errors.Join(err, a.Alive())
		}
	}
	return agents, nil
}
