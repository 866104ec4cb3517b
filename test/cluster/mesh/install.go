package mesh

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
)

// The methods of this file do what users do: they install the control plane with pilotctl, and let it inject the proxies.

// Pilotctl calls pilotctl for the cluster and returns its output.
func (m *Mesh) Pilotctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(m.root, "bin", "pilotctl"), append(slices.Clone(args), "--kubeconfig", m.Cluster.Kubeconfig())...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("pilotctl %s: %w\n%s", strings.Join(args, " "), errors.Join(err, ctx.Err()), out)
	}
	return string(out), nil
}

// Install puts the control plane on the cluster and waits until it is ready, and until API servers know its webhooks.
func (m *Mesh) Install(ctx context.Context) error {
	if _, err := m.Pilotctl(ctx, "install", "-f", m.manifest("values.yaml")); err != nil {
		return err
	}
	const roots = "--for=jsonpath={.webhooks[0].clientConfig.caBundle}"
	if _, err := m.Kubectl(ctx, "", "wait", roots, "mutatingwebhookconfiguration/istio-sidecar-injector", "--timeout", patience.String()); err != nil {
		return err
	}
	var err error
	m.HTTP, err = m.Service(ctx, ControlNamespace, "istiod", "http-monitoring")
	return err
}

// Label makes the namespace of the bookstore, whose pods are to get a proxy.
func (m *Mesh) Label(ctx context.Context) error {
	for _, args := range [][]string{{"create", "namespace", Namespace}, {"label", "namespace", Namespace, "istio-injection=enabled"}} {
		if _, err := m.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// Deploy puts the bookstore on the cluster, which knows nothing of the mesh, and waits until all its pods are ready. It fails if one has no proxy.
func (m *Mesh) Deploy(ctx context.Context) error {
	if err := m.apply(ctx, "bookstore.yaml"); err != nil {
		return err
	}
	if err := m.available(ctx); err != nil {
		return err
	}
	pods, err := m.Pods(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range pods {
		if !slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c core.Container) bool { return c.Name == Sidecar }) {
			return fmt.Errorf("the pod %s has no proxy", p.Name)
		}
	}
	m.shop, err = m.Service(ctx, Namespace, "shop", "http")
	return err
}

// Handshakes returns how many TLS connections the sidecar of a pod has accepted.
func (m *Mesh) Handshakes(ctx context.Context, pod string) (n int64, err error) {
	stats, err := m.Stats(ctx, pod, `^listener\..*ssl\.handshake$`)
	for _, one := range stats {
		n += one
	}
	return n, err
}

// Objects returns the names of all objects of the cluster, except events.
func (m *Mesh) Objects(ctx context.Context) (all []string, err error) {
	kinds, err := m.Kubectl(ctx, "", "api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return nil, err
	}
	for kind := range strings.FieldsSeq(kinds) {
		if strings.HasPrefix(kind, "events") || kind == "componentstatuses" {
			continue
		}
		list, err := m.Kubectl(ctx, "", "get", kind, "-A", "--ignore-not-found", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		if err != nil {
			return nil, err
		}
		for name := range strings.FieldsSeq(list) {
			all = append(all, kind+" "+name)
		}
	}
	slices.Sort(all)
	return all, nil
}
