package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Labels that choose a revision, or a tag of one.
const (
	tagName       = "istio.io/tag"
	revisionName  = "istio.io/rev"
	injectionName = "istio-injection"
)

// valuesMap is the ConfigMap with the Helm values of the control plane that injection reads, under the key valuesKey.
const (
	valuesMap = "istio-sidecar-injector"
	valuesKey = "values"
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
	found.Annotations = n.Annotations
	if found.Labels, err = m.untagged(ctx, n.Labels); err != nil {
		return nil, err
	}
	if found.Mesh, err = m.MeshConfig(ctx, control, revision); err != nil {
		return nil, err
	}
	name := valuesMap
	if revision != "" && revision != "default" {
		name += "-" + revision
	}
	c, err := m.core.ConfigMaps(control).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // the defaults hold
	case err != nil:
		return nil, fmt.Errorf("reading the values, the ConfigMap %s in the namespace %s: %w", name, control, err)
	default:
		found.Values = []byte(c.Data[valuesKey])
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

// untagged returns the labels of a namespace with the revision instead of a tag of it. Without the permission to read tags, the labels stay.
func (m *Machines) untagged(ctx context.Context, l map[string]string) (map[string]string, error) {
	hooks := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	list, err := m.dynamic.Resource(hooks).List(ctx, metav1.ListOptions{LabelSelector: tagName})
	switch {
	case apierrors.IsForbidden(err):
		return l, nil
	case err != nil:
		return nil, fmt.Errorf("reading the tags of revisions: %w", err)
	}
	tags := map[string]string{}
	for n := range list.Items {
		of := list.Items[n].GetLabels()
		tags[of[tagName]] = of[revisionName]
	}
	return resolved(l, tags), nil
}

// resolved returns the labels of a namespace with the revision instead of a tag. The tag "default" also means istio-injection=enabled.
func resolved(l, tags map[string]string) map[string]string {
	name := l[revisionName]
	switch word, ok := l[injectionName]; {
	case ok && word != "enabled":
		return l
	case ok:
		name = defaultTag
	}
	revision, ok := tags[name]
	if !ok {
		return l
	}
	l = maps.Clone(l)
	delete(l, injectionName)
	l[revisionName] = revision
	return l
}
