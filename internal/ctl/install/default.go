package install

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The labels of the webhooks of a revision, and of its tags.
const (
	RevisionLabel = "istio.io/rev"
	TagLabel      = "istio.io/tag"
	// DefaultRevision is the name of the control plane without a revision, and of the tag that takes its place.
	DefaultRevision = "default"
)

// DefaultTag is the webhook configuration of the tag that takes the place of the default revision.
func DefaultTag() Reference {
	return Reference{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", "istio-revision-tag-" + DefaultRevision}
}

// idle is a requirement that no namespace meets: webhooks with it are never called. Istio writes the same one.
func idle() map[string]any {
	return map[string]any{"key": "istio.io/deactivated", "operator": "In", "values": []any{"never-match"}}
}

// Idle makes the webhooks of a configuration select no namespace, or takes that back. It reports whether the configuration has changed.
func Idle(o *unstructured.Unstructured, on bool) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	changed := false
	for _, one := range list {
		w, ok := one.(map[string]any)
		if !ok {
			continue
		}
		was, _, _ := unstructured.NestedSlice(w, "namespaceSelector", "matchExpressions")
		is := slices.DeleteFunc(slices.Clone(was), func(e any) bool { return reflect.DeepEqual(e, idle()) })
		if on {
			is = append(is, idle())
		}
		if len(is) == len(was) {
			continue
		}
		changed = true
		if len(is) == 0 {
			unstructured.RemoveNestedField(w, "namespaceSelector", "matchExpressions")
			continue
		}
		// It fails only if a selector is no object, which no API server stores.
		_ = unstructured.SetNestedSlice(w, is, "namespaceSelector", "matchExpressions")
	}
	if changed {
		_ = unstructured.SetNestedSlice(o.Object, list, "webhooks")
	}
	return changed
}

// yield makes the webhooks of the default revision idle if a tag of the cluster has its place: two of them would inject the same pods.
func (c *Cluster) yield(ctx context.Context, revision string, objects []*unstructured.Unstructured) error {
	if revision != "" {
		return c.rival(ctx, objects)
	}
	tag, err := c.get(ctx, DefaultTag())
	if err != nil || tag == nil {
		return err
	}
	for _, o := range objects {
		if isWebhook(o.GetKind()) && o.GetLabels()[TagLabel] == "" {
			Idle(o, true)
		}
	}
	c.Say(fmt.Sprintf("the revision %s has the tag %s: the webhooks of this control plane stay idle until pilotctl tag remove %[2]s", tag.GetLabels()[RevisionLabel], DefaultRevision), true)
	return nil
}

// rival refuses values with the tag "default" while the control plane without a revision has its webhooks.
func (c *Cluster) rival(ctx context.Context, objects []*unstructured.Unstructured) error {
	if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return refer(o) == DefaultTag() }) {
		return nil
	}
	list, err := c.List(ctx, DefaultTag(), RevisionLabel+"="+DefaultRevision+",!"+TagLabel)
	if err != nil {
		return err
	}
	for _, o := range list {
		if Idle(o, true) {
			return fmt.Errorf("revisionTags: the control plane without a revision is the default one, with the webhooks %s; leave the tag %s out, and call "+
				"pilotctl tag set %[2]s --overwrite after the installation", o.GetName(), DefaultRevision)
		}
	}
	return nil
}

// List returns the objects of a kind that a selector of labels selects.
func (c *Cluster) List(ctx context.Context, kind Reference, selector string) (all []*unstructured.Unstructured, err error) {
	list, err := c.at(Reference{APIVersion: kind.APIVersion, Kind: kind.Kind, Namespace: kind.Namespace}).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing objects of the kind %s: %w", kind.Kind, err)
	}
	for n := range list.Items {
		all = append(all, &list.Items[n])
	}
	return all, nil
}

// Put makes an object, or replaces the one of that name, also if another tool has made it.
func (c *Cluster) Put(ctx context.Context, o *unstructured.Unstructured) error {
	r := refer(o)
	is, err := c.get(ctx, r)
	switch {
	case err != nil:
		return err
	case is == nil:
		_, err = c.at(r).Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
	default:
		o = o.DeepCopy()
		o.SetResourceVersion(is.GetResourceVersion())
		_, err = c.at(r).Update(ctx, o, metav1.UpdateOptions{FieldManager: manager})
	}
	if err != nil {
		return fmt.Errorf("writing %v: %w", r, err)
	}
	c.Say(fmt.Sprintf("%v: written", r), true)
	return nil
}

// Drop deletes an object, also if another tool has made it, and waits until it is gone.
func (c *Cluster) Drop(ctx context.Context, o *unstructured.Unstructured) error {
	if err := c.drop(ctx, refer(o)); err != nil {
		return err
	}
	c.Say(fmt.Sprintf("%v: removed", refer(o)), true)
	return nil
}

// tagged returns an error if a tag that is no part of the installation points to its revision: its webhooks would refuse all pods.
func (c *Cluster) tagged(ctx context.Context, r Removal, record *Record) error {
	revision := r.Name.Release
	if revision == "" {
		revision = DefaultRevision
	}
	list, err := c.List(ctx, DefaultTag(), TagLabel+","+RevisionLabel+"="+revision)
	if err != nil {
		return err
	}
	for _, o := range list {
		if !slices.Contains(record.Objects, refer(o)) {
			tag := o.GetLabels()[TagLabel]
			return fmt.Errorf("nothing is removed, because the tag %s points to the revision %s; move it with pilotctl tag set %[1]s --revision NAME --overwrite, "+
				"or remove it with pilotctl tag remove %[1]s", tag, revision)
		}
	}
	return nil
}
