package file

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/source/object"
)

// version is a version of an object: of the mesh's configuration, or the value of an object of Kubernetes. The zero version is none.
type version struct {
	object *api.Object
	value  kube.Value
	at     api.Position // of value
}

func (v version) exists() bool { return v.object != nil || v.value != nil }

// same reports whether another version has the same content.
func (v version) same(o version) bool {
	switch {
	case v.object != nil && o.object != nil:
		return v.object.Hash == o.object.Hash
	case v.value != nil && o.value != nil:
		return v.value.Same(o.value)
	}
	return v.exists() == o.exists()
}

// substitute reports whether the version takes the place of a refused access policy.
func (v version) substitute() bool { return v.object != nil && v.object.Substitute }

// text is a decoded document. It is reused when the same bytes occur again.
type text struct {
	line int
	docs []decoded
}

// decoded is a document, and the values that it has if it is an object of Kubernetes.
type decoded struct {
	api.Document
	items []object.Item
	// unread is true for an object that is not configuration of the mesh and has no value.
	unread bool
}

func (t text) moved(line int) text {
	if t.line == line {
		return t
	}
	docs := slices.Clone(t.docs)
	for i := range docs {
		docs[i].Document = docs[i].ShiftLines(line - t.line)
	}
	return text{line: line, docs: docs}
}

// decode returns the documents of a text in a file. old is the file before, whose documents are used again if they are the same; it may be
// nil.
func (l *ledger) decode(f, old *file, path string, t api.Text) []decoded {
	id := omap.Sum(t.Bytes())
	known, ok := f.texts[id]
	if !ok && old != nil {
		known, ok = old.texts[id]
	}
	if !ok {
		known = text{line: t.Line()}
		for _, d := range t.Decode(path) {
			d.Check()
			known.docs = append(known.docs, l.convert(d))
		}
	}
	known = known.moved(t.Line())
	f.texts[id] = known
	return known.docs
}

// convert makes the values of an object of Kubernetes, and releases its content.
func (l *ledger) convert(d api.Document) decoded {
	out := decoded{Document: d}
	if d.Other == nil || d.Form != api.AnObject {
		return out
	}
	out.Other, out.unread = nil, true
	if l.cluster == "" {
		return out
	}
	items, read, problem := l.converter.Read(&d, l.cluster)
	if problem != nil {
		out.Problems = []api.Problem{*problem}
	}
	out.items, out.unread = items, !read
	return out
}

// fill adds the claims and problems of the documents of a file, and reports whether each of them identifies its objects. A file that was never
// about objects has one remark.
func (f *file) fill(path string, docs []decoded, old *file) bool {
	hasObject := slices.ContainsFunc(docs, func(d decoded) bool { return d.Form == api.AnObject })
	whole, last, form := true, lastGood(old), api.AnObject
	var mistakes []api.Problem
	for _, d := range docs {
		if !d.Identified && d.Aside(hasObject) {
			whole, form, mistakes = false, max(form, d.Form), append(mistakes, d.Problems...)
			continue
		}
		whole = f.claim(d, last) && whole
	}
	kept := !whole && f.keep(old)
	switch {
	case form == api.AnObject:
	case kept:
		f.addProblems(mistakes)
	default:
		f.addProblems([]api.Problem{api.Remark(path, form)})
	}
	return whole
}

// claim adds the claims of a document, and reports whether it identifies its objects.
func (f *file) claim(d decoded, last map[api.Key]version) bool {
	f.addProblems(d.Problems)
	for _, item := range d.items {
		f.claims = append(f.claims, &claim{key: item.Key, at: d.Position, version: version{value: item.Value, at: d.Position}})
	}
	switch {
	case d.unread:
		f.unread[d.Key.Kind]++
	case d.Object != nil:
		f.claims = append(f.claims, &claim{key: d.Key, at: d.Position, version: version{object: d.Object}})
	case d.Identified:
		f.claims = append(f.claims, &claim{key: d.Key, at: d.Position, version: last[d.Key], state: stale, denying: d.Denying})
	case api.Failed(d.Problems):
		return false
	}
	return !d.Cut
}

// duplicates returns the problems of claims beside the one that counts. Variants of a workload often lie side by side.
func duplicates(key api.Key, winner *claim, claims []*claim) (found []api.Problem) {
	for _, c := range claims {
		if c == winner || c.state != fresh || !c.exists() {
			continue
		}
		p := api.Problem{Object: key, Position: c.at, Severity: api.Error, Code: "object-duplicate", Reason: fmt.Sprintf(
			"is also defined at %v, which counts because it comes first; remove one of them", winner.at)}
		if c.value != nil {
			if c.same(winner.version) || strings.Contains(key.Name, "/") {
				continue
			}
			p.Severity = api.Warning
		}
		found = append(found, p)
	}
	return found
}

// unreadKinds returns one problem for all objects of the directory that are not read; none if there are none.
func (l *ledger) unreadKinds() []api.Problem {
	kinds := object.Unread{}
	for _, f := range l.files {
		for kind, n := range f.unread {
			kinds[kind] += n
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	why := "Pilot does not read"
	if l.cluster == "" {
		why = "are not read from files beside a cluster"
	}
	p := problem(l.dir, api.Info, "has objects of kinds that %s: %v", why, kinds)
	p.Code = "kind-unread"
	return []api.Problem{p}
}
