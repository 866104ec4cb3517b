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

// deployment is one Deployment of the workload with its Service, both named web.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: pilot.test/workload:v1
        args: [serve, --http=:8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// TestNodeLoss: a node dies; its death is detected, its pods are evicted and recreated on the other, and the service keeps answering.
func TestNodeLoss(t *testing.T) {
	s := on(t)
	s.apply(fmt.Sprintf(deployment, 4))
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	lost := s.c.Node("node-1")
	lost.Stop()
	defer func() {
		if err := lost.Start(); err != nil {
			t.Fatal(err)
		}
		s.until("node-1 to be ready again", func(ctx context.Context) error { return nodeReady(ctx, s, "node-1") })
	}()
	s.until("the node to count as lost", func(ctx context.Context) error {
		if nodeReady(ctx, s, "node-1") == nil {
			return fmt.Errorf("it still counts as ready")
		}
		return nil
	})
	s.until("four ready pods on the other node", func(ctx context.Context) error {
		pods, err := s.api.CoreV1().Pods(s.namespace).List(ctx, meta.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods.Items {
			if p.Spec.NodeName == "node-0" && p.DeletionTimestamp == nil && container(&p, "main").Ready {
				ready++
			}
		}
		if ready < 4 {
			return fmt.Errorf("%d", ready)
		}
		return nil
	})
	s.leads(4)
}

// leads waits until the service web leads to its pods, which are known to be ready a moment before, and returns its URL. Every request is
// answered from then on, and all pods take part.
func (s *stage) leads(pods int) (url string) {
	s.Helper()
	service, err := s.api.CoreV1().Services(s.namespace).Get(s.Context(), "web", meta.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	url = "http://" + service.Spec.ClusterIP
	s.until(fmt.Sprintf("the service web to lead to %d pods", pods), func(context.Context) error {
		out, err := s.call("--count=40", "--fresh", "--timeout=2s", url)
		if err != nil || strings.Count(out, "answered") != pods {
			return unmet(err, "want answers of %d pods:\n%s", pods, out)
		}
		return nil
	})
	return url
}

func nodeReady(ctx context.Context, s *stage, name string) error {
	n, err := s.api.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == core.NodeReady && c.Status == core.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready", name)
}

// TestAPIServerRestart: pods neither end nor restart while the API server is away, and changes during the outage are reported when it is back.
func TestAPIServerRestart(t *testing.T) {
	s := on(t)
	s.apply(fmt.Sprintf(deployment, 2))
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	s.apply(manifest("brief", `command: [sh, -c, "while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 0"]`))
	s.ready("brief")
	address := s.leads(2)
	before := s.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	s.c.StopAPIServer()
	out, down := s.call("--count=20", "--fresh", address)
	if err := s.c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if down != nil {
		t.Errorf("the service while the API server was away: %v\n%s", down, out)
	}
	s.kubectl("exec", "brief", "--", "touch", "/tmp/go")
	s.until("a status written after the restart", func(ctx context.Context) error {
		p, err := s.pod(ctx, "brief")
		if err != nil {
			return err
		}
		if c := container(p, "main"); c.RestartCount == 0 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if after := s.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}"); after != before {
		t.Errorf("containers before the restart %s, after it %s", before, after)
	}
}

// TestDelayedEndpoints: with EndpointSlices delayed, a service keeps sending to where a pod was; without, it follows.
func TestDelayedEndpoints(t *testing.T) {
	s := on(t)
	s.apply(fmt.Sprintf(deployment, 1))
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	address := s.leads(1)
	if err := s.c.DelayEndpointSlices(time.Hour); err != nil {
		t.Fatal(err)
	}
	s.kubectl("delete", "pod", "-l", "app=web", "--timeout=60s")
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	if out, err := s.call("--timeout=1s", address); err == nil {
		t.Errorf("the service follows slices that are delayed by an hour:\n%s", out)
	}
	if err := s.c.DelayEndpointSlices(0); err != nil {
		t.Fatal(err)
	}
	s.within(5*time.Second, "the service to work again", func(context.Context) error {
		out, err := s.call("--timeout=1s", address)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// TestFrozenControllers: with the controllers frozen, no watcher sees that a pod is gone; thawed, they catch up.
func TestFrozenControllers(t *testing.T) {
	s := on(t)
	s.apply(fmt.Sprintf(deployment, 1))
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	slices := func() string {
		return s.kubectl("get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", "jsonpath={.items[*].endpoints[*].addresses[*]}")
	}
	before := slices()
	if err := s.c.FreezeControllers(); err != nil {
		t.Fatal(err)
	}
	s.kubectl("delete", "pod", "-l", "app=web", "--wait=false")
	s.until("the pod to be gone", func(ctx context.Context) error {
		if out := strings.TrimSpace(s.kubectl("get", "pods", "-l", "app=web", "-o", "name")); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	frozen := slices()
	if err := s.c.ThawControllers(); err != nil {
		t.Fatal(err)
	}
	if frozen != before {
		t.Errorf("slices changed from %q to %q while the controllers were frozen", before, frozen)
	}
	s.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	s.until("slices to follow", func(context.Context) error {
		if after := slices(); after == before || after == "" {
			return fmt.Errorf("%q", after)
		}
		return nil
	})
}
