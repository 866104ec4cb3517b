package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/object"
)

// The labels that are read of objects of configuration and of the webhooks that define tags of revisions.
const (
	revisionLabel = "istio.io/rev"
	tagLabel      = "istio.io/tag"
	// revisionField and allocateField are labels in the problems of package api.
	revisionField = "metadata.labels[" + revisionLabel + "]"
	allocateField = "metadata.labels[" + api.AutoAllocate + "]"
	// appliedAnnotation is kubectl's copy of the object. It is large and not read.
	appliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"
)

// configured is the content that the table of a kind keeps for an object of configuration.
type configured struct {
	// object is the last good version; nil if there was none.
	object *api.Object
	// good is true if object is the present version.
	good bool
	// denying is the substitute of a refused present version, for use without a good one; nil if it needs none.
	denying *api.Object
	// created and generation are metadata of the present version.
	created    time.Time
	generation int64
	// revision is the label istio.io/rev of the present version, and problems are its problems.
	revision string
	problems []api.Problem
}

// converter converts objects to the content that tables keep. Its methods may be called from any goroutine.
type converter struct {
	object.Converter
	// place is the place of objects of configuration in problems: "cluster" and the ID of the cluster.
	place string
	// ignoreRefused is true if refused access policies have no substitutes.
	ignoreRefused bool
}

// configured reads an object of configuration.
func (c *converter) configured(kind api.Kind, u *unstructured.Unstructured) *configured {
	key := api.Key{Kind: kind.Name, Namespace: u.GetNamespace(), Name: u.GetName()}
	out := &configured{
		revision: c.Texts.Of(u.GetLabels()[revisionLabel]), created: u.GetCreationTimestamp().UTC(), generation: u.GetGeneration(),
	}
	data, err := json.Marshal(document(u))
	if err != nil {
		out.problems = []api.Problem{c.problem(key, fmt.Sprintf("cannot be written as JSON: %v", err))}
		return out
	}
	docs := api.DecodeServed(c.place, data)
	if len(docs) != 1 {
		out.problems = []api.Problem{c.problem(key, fmt.Sprintf("is read as %d documents instead of one; please report this", len(docs)))}
		return out
	}
	doc := docs[0]
	doc.Check()
	for _, p := range doc.Problems {
		if p.Field == revisionField || p.Field == allocateField {
			continue // the warning that the label has no effect is for files
		}
		p.Object, p.Position = key, api.Position{File: c.place} // the author does not know the lines of the JSON
		if p.Severity == api.Error {
			p.Position.Generation = u.GetGeneration() // of the refused version
		}
		out.problems = append(out.problems, p)
	}
	if o := doc.Object; o != nil && o.Key == key {
		o.Position = api.Position{File: c.place, Generation: u.GetGeneration()}
		out.object, out.good = o, true
	} else if d := doc.Denying; d != nil && d.Key == key && !c.ignoreRefused {
		d.Position = api.Position{File: c.place, Generation: u.GetGeneration()}
		out.denying = d
	} else if !api.Failed(out.problems) {
		out.problems = append(out.problems, c.problem(key, "is read as another object; please report this"))
	}
	return out
}

func (c *converter) problem(key api.Key, reason string) api.Problem {
	return api.Problem{Object: key, Position: api.Position{File: c.place}, Severity: api.Error, Code: "internal-error", Reason: reason}
}

// document returns the parts of an object that its author wrote, and its status. Metadata that the API server adds is left
// out, because package api knows the metadata of files only.
func document(u *unstructured.Unstructured) map[string]any {
	meta := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()}
	if t := u.GetCreationTimestamp(); !t.IsZero() {
		meta["creationTimestamp"] = t.UTC().Format("2006-01-02T15:04:05Z")
	}
	if l := u.GetLabels(); len(l) > 0 {
		meta["labels"] = l
	}
	if a := maps.Clone(u.GetAnnotations()); len(a) > 0 {
		delete(a, appliedAnnotation)
		meta["annotations"] = a
	}
	out := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": meta}
	for _, part := range []string{"spec", "status"} {
		if v, ok := u.Object[part]; ok {
			out[part] = v
		}
	}
	return out
}

// mergeConfigured keeps the last good version of an object whose present version is malformed.
func mergeConfigured(old, is content) content {
	was, now := old.(*configured), is.(*configured)
	if !now.good {
		now.object = was.object
	} else if was.object != nil && was.object.Hash == now.object.Hash && was.object.Position == now.object.Position {
		now.object = was.object
	}
	if now.denying != nil && was.denying != nil && was.denying.Hash == now.denying.Hash && was.denying.Position == now.denying.Position {
		now.denying = was.denying
	}
	if was.object == now.object && was.denying == now.denying && was.created.Equal(now.created) && was.good == now.good && was.revision == now.revision && slices.Equal(was.problems, now.problems) {
		return old
	}
	return now
}

func showConfigured(n name, c content, v *view) shown {
	o := c.(*configured)
	if !v.configuration(n.namespace, o.revision) {
		return shown{}
	}
	if o.object == nil && o.denying != nil {
		return shown{object: o.denying, problems: append(slices.Clip(o.problems), o.denying.Denial())}
	}
	return shown{object: o.object, problems: o.problems}
}

// revisionTag is another name of a revision.
type revisionTag struct{ tag, revision string }

func mergeTags(old, is content) content {
	if *old.(*revisionTag) == *is.(*revisionTag) {
		return old
	}
	return is
}

// definition represents a CustomResourceDefinition of a kind of configuration. version is its resource version.
type definition struct{ version string }

// watchConfiguration starts to watch tags, and the definitions of the kinds of configuration.
func (r *run) watchConfiguration() {
	r.tags = &table{what: "mutatingwebhookconfigurations.admissionregistration.k8s.io", merge: mergeTags, changed: r.look}
	r.tags.convert = func(o runtime.Object) content {
		l := o.(*metav1.PartialObjectMetadata).Labels
		return &revisionTag{l[tagLabel], l[revisionLabel]}
	}
	r.watch(r.tags, r.clients.partial(schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, filter{labels: tagLabel}))

	known := map[string]bool{}
	for _, k := range api.Kinds() {
		known[definitionName(k)] = true
	}
	for _, k := range api.UnsupportedKinds() {
		what, _ := unsupportedName(k)
		known[what] = true
	}
	r.definitions = &table{what: "customresourcedefinitions.apiextensions.k8s.io", changed: r.watchKinds}
	r.definitions.merge = func(_, is content) content { return is }
	r.definitions.convert = func(o runtime.Object) content {
		m := o.(*metav1.PartialObjectMetadata)
		if !known[m.Name] {
			return nil
		}
		return &definition{m.ResourceVersion}
	}
	r.watch(r.definitions, r.clients.partial(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, filter{}))
}

// definitionName returns the name of the CustomResourceDefinition of a kind.
func definitionName(k api.Kind) string { return k.Plural() + "." + k.Group() }

// watchKinds starts to watch the kinds of configuration that are defined, and stops to watch the others. It watches all kinds if
// the definitions cannot be listed.
func (r *run) watchKinds() {
	for _, k := range api.Kinds() {
		_, exists := r.definitions.rows[name{"", definitionName(k)}]
		exists = exists || !r.definitions.listed || k.BuiltIn()
		w := r.kinds[k.Name]
		switch {
		case exists && w == nil:
			r.kinds[k.Name] = r.watchKind(k)
		case exists:
			w.nudge()
		case w != nil:
			w.stop()
			delete(r.kinds, k.Name)
			r.remove(w.t)
		}
	}
	r.watchUnsupported()
}

// watchKind starts to watch a kind of configuration.
func (r *run) watchKind(k api.Kind) *watcher {
	c := r.converter
	t := &table{what: definitionName(k), kind: k.Name, merge: mergeConfigured, show: showConfigured}
	t.convert = func(o runtime.Object) content { return c.configured(k, o.(*unstructured.Unstructured)) }
	if t.guards() {
		t.admit = func(n name, c content) content { return r.recall(t, n, c) }
	}
	var versions []resource
	for _, v := range k.Versions() {
		versions = append(versions, r.clients.custom(schema.GroupVersionKind{Group: k.Group(), Version: v, Kind: k.Name}))
	}
	return r.watch(t, versions...)
}

// configMap returns the name of the ConfigMap of a revision of the control plane.
func configMap(revision string) string {
	if cmp.Or(revision, defaultRevision) == defaultRevision {
		return "istio"
	}
	return "istio-" + revision
}
