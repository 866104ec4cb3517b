package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ValuesMap is the ConfigMap with the Helm values of the control plane that injection reads, under the key ValuesKey.
const (
	ValuesMap = "istio-sidecar-injector"
	ValuesKey = "values"
)

// Injection are the facts about a pod of a cluster that decide about its injection.
type Injection struct {
	// Pod is the pod as JSON.
	Pod                 []byte
	Namespace           string
	Labels, Annotations map[string]string // of the namespace
	Mesh, Values        []byte
}

// PodName returns namespace and name of NAME or NAME.NAMESPACE, in this order.
func PodName(what, namespace string) [2]string {
	if name, ns, ok := strings.Cut(what, "."); ok {
		return [2]string{ns, name}
	}
	return [2]string{namespace, what}
}

// Injection reads the facts about a pod, whose namespace and name are given, and the settings of a revision of the control plane.
func (m *Machines) Injection(ctx context.Context, pod [2]string, control, revision string) (*Injection, error) {
	p, err := m.core.Pods(pod[0]).Get(ctx, pod[1], metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the pod %s in the namespace %s: %w; name its namespace with -n, or a file", pod[1], pod[0], err)
	}
	p.APIVersion, p.Kind, p.ManagedFields = "v1", "Pod", nil
	found := &Injection{Namespace: pod[0]}
	if found.Pod, err = json.Marshal(p); err != nil {
		return nil, fmt.Errorf("encoding the pod: %w", err)
	}
	n, err := m.Namespace(ctx, pod[0])
	if err != nil {
		return nil, err
	}
	found.Labels, found.Annotations = n.Labels, n.Annotations
	if found.Mesh, err = m.MeshConfig(ctx, control, revision); err != nil {
		return nil, err
	}
	name := ValuesMap
	if revision != "" && revision != "default" {
		name += "-" + revision
	}
	c, err := m.core.ConfigMaps(control).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // the defaults hold
	case err != nil:
		return nil, fmt.Errorf("reading the values, the ConfigMap %s in the namespace %s: %w", name, control, err)
	default:
		found.Values = []byte(c.Data[ValuesKey])
	}
	return found, nil
}

// Namespace reads a namespace.
func (m *Machines) Namespace(ctx context.Context, name string) (*core.Namespace, error) {
	n, err := m.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the namespace %s: %w", name, err)
	}
	return n, nil
}
