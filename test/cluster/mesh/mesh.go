package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/testbed"
)

// The namespace of the bookstore, and the container of a sidecar.
const (
	Namespace = "bookstore"
	Sidecar   = "istio-proxy"
)

// patience is how long the pods of the mesh may take to be ready on a machine that is busy.
const patience = 3 * time.Minute

// Mesh is a control plane and a bookstore on a cluster.
type Mesh struct {
	testbed.Pages // of the control plane
	Cluster       *cluster.Cluster
	root          string
	shop          string
}

// New prepares a mesh; nothing is on the cluster yet.
func New(c *cluster.Cluster) (*Mesh, error) {
	root, err := binaries.Root()
	// Addresses of the cluster are reached directly, whatever proxy the environment names.
	return &Mesh{Pages: testbed.Pages{Client: testbed.NewClient()}, Cluster: c, root: root}, err
}

// StartControl puts the control plane on the cluster and waits until it is ready.
func (m *Mesh) StartControl(ctx context.Context) error {
	definitions, err := Definitions(ctx)
	if err != nil {
		return err
	}
	permissions, err := Permissions(ControlNamespace)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		input string
		args  []string
	}{
		{"", []string{"apply", "--server-side", "-f", definitions}},
		{"", []string{"wait", "--for=condition=Established", "-f", definitions}},
		{"", []string{"create", "namespace", ControlNamespace}},
		{permissions, []string{"apply", "-f", "-"}},
		{"", []string{"apply", "-f", m.manifest("control-plane.yaml")}},
		{"", []string{"rollout", "status", "deployment/istiod", "-n", ControlNamespace, "--timeout", patience.String()}},
	} {
		if _, err := m.Kubectl(ctx, step.input, step.args...); err != nil {
			return err
		}
	}
	m.HTTP, err = m.Service(ctx, ControlNamespace, "istiod", "http-monitoring")
	return err
}

// StartBookstore puts the bookstore on the cluster and waits until all its pods are ready.
func (m *Mesh) StartBookstore(ctx context.Context) error {
	if _, err := m.Kubectl(ctx, "", "create", "namespace", Namespace); err != nil {
		return err
	}
	if err := m.apply(ctx, "bookstore-mesh.yaml"); err != nil {
		return err
	}
	err := m.available(ctx)
	if err != nil {
		return err
	}
	m.shop, err = m.Service(ctx, Namespace, "shop", "http")
	return err
}

// apply writes the configuration of the bookstore, and then a manifest of its pods. A proxy that connects before its Sidecar exists gets the listeners of
// all services, and drains them for most of a minute. A control plane that starts in that time sends their routes again.
func (m *Mesh) apply(ctx context.Context, manifest string) error {
	args := []string{"apply"}
	for _, name := range []string{"sidecars", "versions", "routes"} {
		args = append(args, "-f", m.Sample("config/"+name+".yaml"))
	}
	_, err := m.Kubectl(ctx, "", append(args, "-f", m.manifest(manifest))...)
	return err
}

// available waits until all Deployments of the bookstore are available.
func (m *Mesh) available(ctx context.Context) error {
	_, err := m.Kubectl(ctx, "", "wait", "--for=condition=Available", "deployment", "--all", "-n", Namespace, "--timeout", patience.String())
	if err != nil {
		pods, _ := m.Kubectl(ctx, "", "get", "pods", "-n", Namespace, "-o", "wide")
		return fmt.Errorf("%w\n%s", err, pods)
	}
	return nil
}

// manifest is a file of test/cluster/samples.
func (m *Mesh) manifest(name string) string {
	return filepath.Join(m.root, "test", "cluster", "samples", name)
}

// Sample is a file of samples/bookstore.
func (m *Mesh) Sample(name string) string {
	return filepath.Join(m.root, "samples", "bookstore", filepath.FromSlash(name))
}

// Kubectl runs kubectl as the administrator and returns its output.
func (m *Mesh) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, m.Cluster.Kubectl(), append([]string{"--kubeconfig", m.Cluster.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), errors.Join(err, ctx.Err()), stderr.String())
	}
	return stdout.String(), nil
}

// Service returns the address of a service's port.
func (m *Mesh) Service(ctx context.Context, namespace, name, port string) (string, error) {
	s, err := m.Cluster.Client().CoreV1().Services(namespace).Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("the address of the service %s: %w", name, err)
	}
	for _, p := range s.Spec.Ports {
		if p.Name == port {
			return net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(p.Port))), nil
		}
	}
	return "", fmt.Errorf("the service %s has no port %s", name, port)
}

// Shop is host:port at which customers find the shop: its service, behind which is the shop's sidecar.
func (m *Mesh) Shop() string { return m.shop }

// Pods returns the pods with an app label, or all of the bookstore for "".
func (m *Mesh) Pods(ctx context.Context, app string) ([]core.Pod, error) {
	o := meta.ListOptions{}
	if app != "" {
		o.LabelSelector = "app=" + app
	}
	list, err := m.Cluster.Client().CoreV1().Pods(Namespace).List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list.Items, nil
}

// Pod returns the name of the only pod with an app label.
func (m *Mesh) Pod(ctx context.Context, app string) (string, error) {
	pods, err := m.Pods(ctx, app)
	if err == nil && len(pods) != 1 {
		err = fmt.Errorf("%d pods of %s, want one", len(pods), app)
	}
	if err != nil {
		return "", err
	}
	return pods[0].Name, nil
}

// Admin reads a page of the Envoy in a pod, with pilot-agent.
func (m *Mesh) Admin(ctx context.Context, pod, path string) (string, error) {
	return m.Kubectl(ctx, "", "exec", "-n", Namespace, pod, "-c", Sidecar, "--", "pilot-agent", "request", "GET", path)
}

// Stats returns the counters and gauges of the Envoy in a pod whose names match the regular expression.
func (m *Mesh) Stats(ctx context.Context, pod, match string) (map[string]int64, error) {
	page, err := m.Admin(ctx, pod, "stats?format=json&filter="+url.QueryEscape(match))
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Stats []struct {
			Name  string
			Value json.Number
		}
	}
	if err := json.Unmarshal([]byte(page), &parsed); err != nil {
		return nil, fmt.Errorf("statistics of %s: %w", pod, err)
	}
	stats := map[string]int64{}
	for _, s := range parsed.Stats {
		if n, err := s.Value.Int64(); err == nil && s.Name != "" {
			stats[s.Name] = n
		}
	}
	return stats, nil
}

// ending reports whether a pod is being deleted, or is gone: its Envoy cannot be asked any more.
func (m *Mesh) ending(ctx context.Context, pod string) bool {
	p, err := m.Cluster.Client().CoreV1().Pods(Namespace).Get(ctx, pod, meta.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && p.DeletionTimestamp != nil
}

// Rejected returns an error that names what the sidecars have rejected since they started. Sidecars of pods that end during the call do not count.
func (m *Mesh) Rejected(ctx context.Context) error {
	pods, err := m.Pods(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range pods {
		stats, err := m.Stats(ctx, p.Name, `\.update_rejected$`)
		if err != nil {
			if m.ending(ctx, p.Name) {
				continue
			}
			return err
		}
		if len(stats) == 0 {
			return fmt.Errorf("the Envoy of %s has no update_rejected counter: nothing was subscribed", p.Name)
		}
		for name, n := range stats {
			if n != 0 {
				return fmt.Errorf("the Envoy of %s: %s = %d", p.Name, name, n)
			}
		}
	}
	return nil
}
