// Package tags gives revisions of the control plane other names. Namespaces that choose a tag (istio.io/rev=TAG) move to another revision when
// the tag does, without another label. A tag is a webhook configuration of its own that calls the service of a revision; the tag "default"
// takes the place of the control plane without a revision, so that istio-injection=enabled counts for it, too.
//
// Invariants: at any moment at least one webhook injects the pods of a namespace whose tag moves, so that none starts without its proxy. A tag never
// points to a revision that cannot answer: its roots and endpoints are looked at before. The chart has the objects; the address and the
// roots come from the webhooks of the revision, so that tags can also point to revisions that other tools have installed.
//
// Goroutines: the package starts none.
package tags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pilotmesh/pilot/internal/ctl/install"
)

// Tag is a name of a revision.
type Tag struct {
	Name     string `json:"tag"`
	Revision string `json:"revision"`
	// Namespaces are the namespaces whose labels choose the tag.
	Namespaces []string `json:"namespaces"`
}

// Change describes a tag that is made or moved.
type Change struct {
	Tag, Revision string
	// Namespace is the namespace of the control plane.
	Namespace string
	// Overwrite moves a tag that exists, and puts the tag "default" in the place of the control plane without a revision.
	Overwrite bool
	// AllNamespaces makes the tag "default" inject pods of namespaces without labels.
	AllNamespaces bool
}

// maxName is the length of the longest tag: its objects have it in their names.
const maxName = 50

// Check returns the mistakes in the names of a change.
func (c Change) Check() error {
	if mistakes := validation.IsDNS1123Label(c.Tag); len(mistakes) > 0 || len(c.Tag) > maxName {
		return fmt.Errorf("the tag %q is no name: write lower-case letters, digits and dashes, %d characters at most", c.Tag, maxName)
	}
	if c.Revision == "" {
		return errors.New("name the revision with --revision; pilotctl check lists the control planes of a cluster")
	}
	if c.Tag == c.Revision {
		return fmt.Errorf("the tag %s has the name of its revision, which counts already", c.Tag)
	}
	if c.AllNamespaces && c.Tag != install.DefaultRevision {
		return errors.New("--auto-inject-namespaces belongs to the tag default: other tags count only for namespaces that name them")
	}
	return nil
}

// kinds are the kinds of webhook configurations.
func kinds() []install.Reference {
	mutating := install.DefaultTag()
	validating := mutating
	validating.Kind = "ValidatingWebhookConfiguration"
	return []install.Reference{mutating, validating}
}

// List returns the tags of a cluster.
func List(ctx context.Context, c *install.Cluster) ([]Tag, error) {
	list, err := c.List(ctx, install.DefaultTag(), install.TagLabel)
	if err != nil {
		return nil, err
	}
	tags := []Tag{}
	for _, o := range list {
		l := o.GetLabels()
		users, err := users(ctx, c, l[install.TagLabel])
		if err != nil {
			return nil, err
		}
		tags = append(tags, Tag{l[install.TagLabel], cmp.Or(l[install.RevisionLabel], install.DefaultRevision), users})
	}
	slices.SortFunc(tags, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) })
	return tags, nil
}

// users returns the namespaces whose labels choose a tag.
func users(ctx context.Context, c *install.Cluster, tag string) ([]string, error) {
	list, err := c.List(ctx, install.Reference{APIVersion: "v1", Kind: "Namespace"}, "")
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, o := range list {
		if chooses(o.GetLabels(), tag) {
			names = append(names, o.GetName())
		}
	}
	return names, nil
}

// chooses reports whether the labels of a namespace choose a tag. The label istio-injection goes before revisions.
func chooses(l map[string]string, tag string) bool {
	if word, ok := l["istio-injection"]; ok {
		return tag == install.DefaultRevision && word == "enabled"
	}
	return l[install.RevisionLabel] == tag
}

// Generate returns the objects of a tag. It changes nothing.
func Generate(ctx context.Context, c *install.Cluster, change Change) ([]*unstructured.Unstructured, error) {
	if err := change.Check(); err != nil {
		return nil, err
	}
	revision, err := hooks(ctx, c, change)
	if err != nil {
		return nil, err
	}
	client, err := callable(ctx, c, change.Revision, revision)
	if err != nil {
		return nil, err
	}
	values := map[string]any{"revisionTags": []any{change.Tag}, "sidecarInjectorWebhook": map[string]any{"enableNamespacesByDefault": change.AllNamespaces}}
	if change.Revision != install.DefaultRevision {
		values["revision"] = change.Revision
	}
	all, err := install.Render(install.ControlPlane, install.Release{Namespace: change.Namespace}, values)
	if err != nil {
		return nil, err
	}
	// Its control plane cannot use the permissions of a chart that has not installed it.
	own := revision.GetLabels()["app.kubernetes.io/name"] == "pilot"
	var objects []*unstructured.Unstructured
	for _, o := range all {
		if o.GetLabels()[install.TagLabel] != change.Tag || !own && strings.HasPrefix(o.GetKind(), "ClusterRole") {
			continue
		}
		aim(o, client)
		objects = append(objects, o)
	}
	return objects, nil
}

// hooks returns the injecting webhooks of a revision.
func hooks(ctx context.Context, c *install.Cluster, change Change) (*unstructured.Unstructured, error) {
	list, err := c.List(ctx, install.DefaultTag(), install.RevisionLabel+"="+change.Revision+",!"+install.TagLabel)
	if err != nil {
		return nil, err
	}
	if len(list) > 1 {
		list = slices.DeleteFunc(list, func(o *unstructured.Unstructured) bool {
			client, _ := clientOf(o)
			at, _, _ := unstructured.NestedString(client, "service", "namespace")
			return at != change.Namespace
		})
	}
	switch len(list) {
	case 0:
		return nil, fmt.Errorf("no control plane has the revision %s: no MutatingWebhookConfiguration has the label %s=%[1]s; install it with pilotctl install --revision %[1]s, "+
			"or name another --revision", change.Revision, install.RevisionLabel)
	case 1:
		return list[0], nil
	}
	return nil, fmt.Errorf("the namespace %s has several control planes of the revision %s, with the webhooks %s and %s; give all but one another revision",
		change.Namespace, change.Revision, list[0].GetName(), list[1].GetName())
}

// clientOf returns how API servers call the webhooks of a configuration: all have the same service and roots.
func clientOf(o *unstructured.Unstructured) (map[string]any, bool) {
	list, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	if len(list) == 0 {
		return nil, false
	}
	w, _ := list[0].(map[string]any)
	client, ok := w["clientConfig"].(map[string]any)
	return client, ok
}

// callable returns how API servers call the webhooks of a revision, or why they cannot.
func callable(ctx context.Context, c *install.Cluster, revision string, o *unstructured.Unstructured) (map[string]any, error) {
	client, ok := clientOf(o)
	roots, _ := client["caBundle"].(string)
	if !ok || roots == "" {
		return nil, fmt.Errorf("the webhooks %s of the revision %s have no caBundle: its control plane writes one once it runs; wait until pilotctl check --revision %[2]s shows no error", o.GetName(), revision)
	}
	name, _, _ := unstructured.NestedString(client, "service", "name")
	namespace, _, _ := unstructured.NestedString(client, "service", "namespace")
	if name == "" {
		return client, nil // a URL: only API servers know whether it can be reached
	}
	list, err := c.List(ctx, install.Reference{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", Namespace: namespace}, "kubernetes.io/service-name="+name)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(list, ready) {
		return nil, fmt.Errorf("the service %s/%s of the revision %s has no ready endpoint: the webhooks of the tag would refuse all pods; see kubectl describe pods -n %[1]s -l app=istiod", namespace, name, revision)
	}
	return client, nil
}

// ready reports whether an EndpointSlice has a ready endpoint.
func ready(o *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "endpoints")
	return slices.ContainsFunc(list, func(one any) bool {
		e, _ := one.(map[string]any)
		is, found, _ := unstructured.NestedBool(e, "conditions", "ready")
		return is || !found
	})
}

// aim makes API servers call the webhooks of a configuration like the ones of a revision. Validation has another path of the same service.
func aim(o *unstructured.Unstructured, client map[string]any) {
	list, found, _ := unstructured.NestedSlice(o.Object, "webhooks")
	if !found {
		return
	}
	for _, one := range list {
		w, ok := one.(map[string]any)
		if !ok {
			continue
		}
		to := (&unstructured.Unstructured{Object: client}).DeepCopy().Object
		if path, _, _ := unstructured.NestedString(w, "clientConfig", "service", "path"); o.GetKind() != install.DefaultTag().Kind {
			if _, ok := to["service"]; !ok {
				continue // the URL of injection says nothing about validation
			}
			// It fails only if the service is no object.
			_ = unstructured.SetNestedField(to, path, "service", "path")
		}
		w["clientConfig"] = to
	}
	_ = unstructured.SetNestedSlice(o.Object, list, "webhooks")
}
