package agent

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// ingressMesh has a gateway with its Service and its pod, and an Ingress for web.
const ingressMesh = `apiVersion: v1
kind: Service
metadata: {name: front, namespace: shop}
spec: {clusterIP: 10.255.0.9, selector: {istio: ingressgateway}, ports: [{name: http, port: 80, targetPort: %[1]d}]}
---
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: shop, labels: {istio: ingressgateway}}
status: {podIP: 127.1.0.1}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: shop, annotations: {kubernetes.io/ingress.class: istio}}
spec:
  rules:
  - host: shop.exam.com
    http:
      paths:
      - {path: %[2]s, pathType: Prefix, backend: {service: {name: web, port: {name: main}}}}
      - {path: /exact, pathType: Exact, backend: {service: {name: web, port: {number: %[3]d}}}}
`

// front is a gateway under its agent, in front of web.
type front struct {
	*bed
	router *testbed.Agent
	port   int
}

// newFront starts a gateway that serves an Ingress with a path.
func newFront(t *testing.T, path string) *front {
	t.Helper()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{bed: newBed(t), port: ports[0]}
	f.serves(path)
	f.serve()
	o := options("--terminationDrainDuration=60s")
	o.Role, o.Env = "router", []string{`ISTIO_METAJSON_LABELS={"istio":"ingressgateway"}`, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=10ms"}
	f.router = f.ready(o, testbed.Node{})
	return f
}

// serves writes the Ingress with a path.
func (f *front) serves(path string) {
	f.Helper()
	if _, err := f.Write("ingress.yaml", fmt.Sprintf(ingressMesh, f.port, path, f.bed.port)); err != nil {
		f.Fatal(err)
	}
}

// request asks the gateway.
func (f *front) request(ctx context.Context, host, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(f.port)+path, nil)
	if err != nil {
		return 0, err
	}
	req.Host = host
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// gives waits until the gateway answers with a status.
func (f *front) gives(want int, host, path string) {
	f.Helper()
	f.await(fmt.Sprintf("%d for %s%s", want, host, path), func(ctx context.Context) error {
		code, err := f.request(ctx, host, path)
		if err == nil && code != want {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
}

// TestRouterServesIngress: a gateway under its agent serves the paths of an Ingress, and follows an edit.
func TestRouterServesIngress(t *testing.T) {
	f := newFront(t, "/cart")
	f.gives(http.StatusOK, "shop.exam.com", "/cart")
	f.gives(http.StatusOK, "shop.exam.com", "/cart/1")
	f.gives(http.StatusOK, "shop.exam.com:80", "/exact")
	f.gives(http.StatusNotFound, "shop.exam.com", "/cartridge")
	f.gives(http.StatusNotFound, "shop.exam.com", "/exact/1")
	f.gives(http.StatusNotFound, "other.exam.com", "/cart")
	f.serves("/basket")
	f.gives(http.StatusOK, "shop.exam.com", "/basket")
	f.gives(http.StatusNotFound, "shop.exam.com", "/cart")
	const rejected = `^(cluster_manager\.cds|listener_manager\.lds|http\..*\.rds\..*)\.update_rejected$`
	if n, err := f.router.Sum(t.Context(), rejected); n != 0 || err != nil {
		t.Errorf("%d rejections, %v", n, err)
	}
}

// TestRouterDrains: a gateway that is asked to end fails its readiness probe, and answers the request under way before it ends.
func TestRouterDrains(t *testing.T) {
	f := newFront(t, "/cart")
	f.gives(http.StatusOK, "shop.exam.com", "/cart")
	release := f.backend.holdBack()
	done := make(chan error, 1)
	go func() {
		code, err := f.request(context.WithoutCancel(t.Context()), "shop.exam.com", "/cart")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		done <- err
	}()
	select {
	case <-f.backend.arrived:
	case err := <-done:
		t.Fatalf("the request was not held back: %v", err)
	}
	if err := f.router.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	f.await("the agent to tell probes that it is draining", func(ctx context.Context) error {
		if _, err := f.router.Status(ctx, "/healthz/ready"); err == nil {
			return fmt.Errorf("it is ready")
		}
		return nil
	})
	release()
	if err := <-done; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	f.client.CloseIdleConnections()
	f.ends(f.router, 0)
}
