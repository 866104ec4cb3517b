package kube

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pilotmesh/pilot/internal/api"
)

// maxNamed bounds how many objects of an unsupported kind its problem names.
const maxNamed = 10

// revisioned is the content that the table keeps for an object of an unsupported kind: its label istio.io/rev.
type revisioned struct{ revision string }

// unsupportedName returns the name of the CustomResourceDefinition of an unsupported kind, and its resource in the preferred version.
func unsupportedName(k api.UnsupportedKind) (string, schema.GroupVersionResource) {
	of := schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}
	return of.Resource + "." + of.Group, of
}

// watchUnsupported starts to watch the unsupported kinds that are defined, and stops to watch the others. Only the metadata of their
// objects is read, and nothing waits for it.
func (r *run) watchUnsupported() {
	for _, k := range api.UnsupportedKinds() {
		what, of := unsupportedName(k)
		_, exists := r.definitions.rows[name{"", what}]
		w := r.kinds[what]
		switch {
		case exists && w == nil:
			r.kinds[what] = r.watchUnsupportedKind(k, what, of)
		case exists:
			w.nudge()
		case w != nil:
			w.stop()
			delete(r.kinds, what)
			r.remove(w.t)
			r.report("unsupported/" + what)
		}
	}
}

func (r *run) watchUnsupportedKind(k api.UnsupportedKind, what string, of schema.GroupVersionResource) *watcher {
	t := &table{what: what, unsupported: true, excused: true}
	t.merge = func(old, is content) content {
		if *old.(*revisioned) == *is.(*revisioned) {
			return old
		}
		return is
	}
	t.convert = func(o runtime.Object) content {
		return &revisioned{r.converter.Texts.Of(o.(*metav1.PartialObjectMetadata).Labels[revisionLabel])}
	}
	t.looked = func() {
		var problems []api.Problem
		if reason := unsupportedReason(k, t, r.view); reason != "" {
			problems = []api.Problem{{Position: api.Position{File: r.place}, Severity: api.Warning, Code: "kind-unsupported", Reason: reason}}
		}
		r.report("unsupported/"+what, problems...)
	}
	t.changed = t.looked
	var versions []resource
	for _, of.Version = range k.Versions {
		versions = append(versions, r.clients.partial(of, filter{}))
	}
	return r.watch(t, versions...)
}

// unsupportedReason returns the problem of the objects of an unsupported kind that a view shows; empty if there are none. It names the
// first of them.
func unsupportedReason(k api.UnsupportedKind, t *table, v *view) string {
	var first []name
	count := 0
	for n, c := range t.rows {
		if !v.configuration(n.namespace, c.(*revisioned).revision) {
			continue
		}
		count++
		at, _ := slices.BinarySearchFunc(first, n, name.compare)
		if first = slices.Insert(first, at, n); len(first) > maxNamed {
			first = first[:maxNamed]
		}
	}
	if count == 0 {
		return ""
	}
	var names []string
	for _, n := range first {
		names = append(names, n.String())
	}
	if more := count - len(first); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s; objects of %s: %d, %s", k.Remark, t.what, count, strings.Join(names, ", "))
}
