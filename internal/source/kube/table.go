package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
)

// name names an object of one kind. The namespace is empty for objects that have none.
type name struct{ namespace, name string }

func (n name) compare(o name) int {
	return cmp.Or(strings.Compare(n.namespace, o.namespace), strings.Compare(n.name, o.name))
}

// String returns NAMESPACE/NAME, or the name if there is no namespace.
func (n name) String() string {
	if n.namespace == "" {
		return n.name
	}
	return n.namespace + "/" + n.name
}

// content is the part of an object that a table keeps; nil if there is none. Its dynamic type is the same for all objects of a
// table.
type content any

// change is the change of one object. old is nil for a new object, and new for one that was removed.
type change struct {
	name     name
	old, new content
}

// shown is the part of an object that is passed on.
type shown struct {
	value    kube.Value
	object   *api.Object
	problems []api.Problem
}

func (s shown) empty() bool { return s.value == nil && s.object == nil }

// table holds the content of the objects of one watched kind. The mutex of the run guards it, except for its functions.
type table struct {
	// what names the kind in problems and logs, such as "pods".
	what string
	// kind is the kind in the keys of events, and cluster their cluster.
	kind, cluster string
	// convert makes the content of an object. It may be called from any goroutine.
	convert func(runtime.Object) content
	// merge returns the content to keep after old, or old itself if nothing has changed. Both are not nil.
	merge func(old, new content) content
	// admit, if not nil, returns the content to store in the place of another one.
	admit func(n name, c content) content
	// show returns the part of an object that a view shows; it is nil for a table that only the run itself reads. The content is not nil.
	show func(n name, c content, v *view) shown
	// changed, if not nil, is called after each change of the table, and after the first list.
	changed func()
	// looked, if not nil, is called when the view of the run changes.
	looked func()
	// unsupported is true if only a problem depends on the objects.
	unsupported bool
	// failed, if not nil, is called after each failure to list and watch.
	failed func(error)

	rows map[name]content
	// listed is true after the first list, and excused if the kind cannot be listed and Synced does not wait for it any more.
	listed, excused bool
	// missing are the kept objects that are not in the last lists, because these lists are not believed yet, with the time of the
	// first of these lists.
	missing map[name]time.Time
}

// A list is doubted if more than half of at least doubtMost objects are missing in it, or all of at least doubtAll objects.
const (
	doubtMost = 20
	doubtAll  = 3
)

// doubtful reports whether a list is doubted if lacking of the known objects are missing in it.
func doubtful(lacking, known int) bool {
	return known >= doubtMost && 2*lacking > known || known >= doubtAll && lacking == known
}

// set stores the content of an object and returns the change; false if there is none.
func (t *table) set(n name, c content) (change, bool) {
	delete(t.missing, n)
	old := t.rows[n]
	switch {
	case old == nil && c == nil:
		return change{}, false
	case c == nil:
		delete(t.rows, n)
	case old == nil:
		c = t.admitted(n, c)
		t.rows[n] = c
	default:
		if c = t.admitted(n, t.merge(old, c)); c == old {
			return change{}, false
		}
		t.rows[n] = c
	}
	return change{n, old, c}, true
}

func (t *table) admitted(n name, c content) content {
	if t.admit == nil {
		return c
	}
	return t.admit(n, c)
}

// guards reports whether the objects of the table are access policies.
func (t *table) guards() bool { return api.Key{Kind: t.kind}.GuardsAccess() }

// item is an object of a list.
type item struct {
	name    name
	content content
}

// replace takes in a list and returns the changes in the order of names. A doubtful list removes nothing at first: an object is
// removed when it is also missing in a list that comes at least doubt later.
func (t *table) replace(items []item, now time.Time, doubt time.Duration) (changes []change) {
	known := len(t.rows)
	was := t.missing
	listed := make(map[name]struct{}, len(items))
	for _, i := range items {
		listed[i.name] = struct{}{}
	}
	lacking := map[name]time.Time{}
	fresh := 0
	for n := range t.rows {
		if _, ok := listed[n]; ok {
			continue
		}
		first, before := was[n]
		switch {
		case !before:
			first = now
			fresh++
		case now.Sub(first) >= doubt:
			changes = append(changes, change{n, t.rows[n], nil})
			continue
		}
		lacking[n] = first
	}
	if doubtful(fresh, known) || len(lacking) > fresh {
		t.missing = lacking
	} else {
		t.missing = nil
		for n := range lacking {
			changes = append(changes, change{n, t.rows[n], nil})
		}
	}
	for _, c := range changes {
		delete(t.rows, c.name)
	}
	for _, i := range items {
		if c, ok := t.set(i.name, i.content); ok {
			changes = append(changes, c)
		}
	}
	t.listed = true
	slices.SortFunc(changes, func(a, b change) int { return a.name.compare(b.name) })
	return changes
}

// clear removes all objects and returns the changes.
func (t *table) clear() (changes []change) {
	for _, n := range slices.SortedFunc(maps.Keys(t.rows), name.compare) {
		changes = append(changes, change{n, t.rows[n], nil})
	}
	clear(t.rows)
	t.missing = nil
	return changes
}

// doubts returns the problem of objects that are kept although the last list does not have them; false if there are none.
func (t *table) doubts(doubt time.Duration) (reason string, ok bool) {
	if len(t.missing) == 0 {
		return "", false
	}
	return fmt.Sprintf("the last list of %s does not have %d of %d known objects, for example %s; they stay in force until another list, at least %v later, "+
		"does not have them either; if they were not deleted, check the storage of the API server", t.what, len(t.missing), len(t.rows), t.example(), doubt), true
}

// example returns the first of the missing objects.
func (t *table) example() string {
	return slices.MinFunc(slices.Collect(maps.Keys(t.missing)), name.compare).String()
}

// key returns the key of an object of the table.
func (t *table) key(n name) api.Key {
	return api.Key{Kind: t.kind, Namespace: n.namespace, Name: n.name, Cluster: t.cluster}
}
