// Package analyze checks configuration without a control plane, in the same way as a control plane does.
//
// It also answers whether a request would be allowed. It owns the order of the checks: first each document alone (package api), then
// duplicate objects, then relations between objects. The same queries as in a running control plane find the latter, on a graph that
// exists for the analysis only.
//
// Goroutines: none. The package opens no files itself.
package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/entrance"
	"github.com/pilotmesh/pilot/internal/explain/ingresses"
	"github.com/pilotmesh/pilot/internal/explain/patched"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/object"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// sourceName is the name of the source of all objects.
const sourceName = "analysis"

// cluster is the ID of the cluster that objects of Kubernetes count for.
const cluster = "Kubernetes"

// sliceCells is the number of cells that one Slice runs at most.
const sliceCells = 10_000

// Analysis collects the documents to be checked and their problems.
type Analysis struct {
	// Files is the number of files, and Objects the number of valid objects.
	Files, Objects int

	// Read reads a file of this machine that the configuration names; nil if none may be read.
	Read func(name string) ([]byte, error)

	// Unread counts the objects of kinds that are not read, by kind.
	Unread object.Unread

	converter object.Converter
	values    map[api.Key]kube.Value   // of objects of Kubernetes
	secrets   map[string][]string      // names of Secrets by namespace
	first     map[api.Key]api.Position // position of the first document of each object
	usable    map[api.Key]usable
	mesh      *meshconfig.MeshConfig
	embedded  []*api.EmbeddedMesh        // mesh configurations in documents of other kinds
	problems  []api.Problem              // of single documents
	repeated  map[api.Key][]api.Position // of the documents of an object that an earlier document declares
}

// usable is a valid object, with its document as it was before the check, which can still return the lines of fields.
type usable struct {
	object   *api.Object
	document api.Document
}

// New returns an empty analysis.
func New() *Analysis {
	return &Analysis{
		first: make(map[api.Key]api.Position), repeated: make(map[api.Key][]api.Position), secrets: make(map[string][]string), usable: make(map[api.Key]usable), values: make(map[api.Key]kube.Value), Unread: make(object.Unread),
		converter: object.Converter{Texts: object.NewTexts(object.TextLimit), Written: true},
	}
}

// File adds and checks the documents of a file. A file without objects is no mistake, and has one remark.
func (a *Analysis) File(name string, data []byte) {
	a.Files++
	docs := api.Decode(name, data)
	unchecked := slices.Clone(docs)
	for i := range docs {
		docs[i].Check()
	}
	hasObject, form := api.HasObject(docs), api.AnObject
	for i := range docs {
		doc, settings := &docs[i], unchecked[i].Embedded()
		if settings != nil {
			a.embedded = append(a.embedded, settings)
		}
		switch {
		case doc.Aside(hasObject):
			if settings == nil {
				form = max(form, doc.Form)
			}
		case doc.Other != nil:
			a.kubernetes(doc, unchecked[i], settings != nil)
		default:
			a.object(doc, unchecked[i])
		}
	}
	if form != api.AnObject {
		a.problems = append(a.problems, api.Remark(name, form))
	}
}

// object adds a document of configuration of the mesh. text is the document as it was before the check.
func (a *Analysis) object(doc *api.Document, text api.Document) {
	if doc.Identified && a.seen(doc) {
		doc.Object, doc.Denying = nil, nil
	}
	if doc.Object != nil {
		a.Objects++
		a.usable[doc.Key] = usable{doc.Object, text}
	} else if doc.Denying != nil {
		a.usable[doc.Key] = usable{doc.Denying, text}
		doc.Problems = append(doc.Problems, doc.Denying.Denial())
	}
	a.problems = append(a.problems, doc.Problems...)
}

// kubernetes adds a document of a kind that is not one of Istio's. Two documents of one object are no mistake: variants of a Deployment
// often lie side by side, and the first one counts. text is the document as it was before the check. settings is true if the document has a mesh
// configuration.
func (a *Analysis) kubernetes(doc *api.Document, text api.Document, settings bool) {
	items, read, problem := a.converter.Read(doc, cluster)
	switch {
	case problem != nil:
		a.problems = append(a.problems, *problem)
	case !read && !settings:
		a.Unread[doc.Key.Kind]++
		a.secret(doc)
	case !read:
	default:
		a.Objects++
		a.problems = append(a.problems, annotations(doc, text)...)
	}
	for _, item := range items {
		if _, again := a.values[item.Key]; !again {
			a.values[item.Key] = item.Value
		}
	}
}

// seen reports whether there is an earlier document of the same object, and notes the position if there is.
func (a *Analysis) seen(doc *api.Document) bool {
	if _, again := a.first[doc.Key]; !again {
		a.first[doc.Key] = doc.Position
		return false
	}
	a.repeated[doc.Key] = append(a.repeated[doc.Key], doc.Position)
	return true
}

// maxNamed bounds how many positions or objects a message names.
const maxNamed = 3

// duplicates returns one problem for each object with more than one document, at the second one.
func (a *Analysis) duplicates() (list []api.Problem) {
	for k, at := range a.repeated {
		reason := fmt.Sprintf("this object was declared already at %s, which is the one in force", a.first[k])
		if len(at) > 1 {
			reason += fmt.Sprintf("; %s declare it, too; remove or rename all but one", named(at[1:]))
		} else {
			reason += "; remove or rename one"
		}
		list = append(list, api.Problem{Object: k, Position: at[0], Severity: api.Error, Code: "object-duplicate", Field: "metadata.name", Reason: reason})
	}
	return list
}

// named lists things, up to a limit.
func named[T fmt.Stringer](list []T) string {
	var texts []string
	for _, one := range list[:min(len(list), maxNamed)] {
		texts = append(texts, one.String())
	}
	if more := len(list) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	if last := len(texts) - 1; last > 0 {
		return strings.Join(texts[:last], ", ") + " and " + texts[last]
	}
	return strings.Join(texts, "")
}

// Fold returns problems with one in place of several that differ only in object and place: the first, which names the other objects. Each wrong
// field stays a problem of its own, because each has to be corrected.
func Fold(list []api.Problem) (folded []api.Problem) {
	type kind struct {
		api.Severity
		code   code.Code
		reason string
	}
	others, first := map[kind][]api.Key{}, map[kind]int{}
	for _, p := range list {
		k := kind{p.Severity, p.Code, p.Reason}
		at, again := first[k]
		switch {
		case slices.Contains([]code.Code{"field-unknown", "field-invalid", "field-ineffective"}, p.Code), p.Object == (api.Key{}), again && p.Object == folded[at].Object:
			folded = append(folded, p)
		case again:
			others[k] = append(others[k], p.Object)
		default:
			first[k], folded = len(folded), append(folded, p)
		}
	}
	for k, objects := range others {
		folded[first[k]].Reason += "; the same for " + named(objects)
	}
	return folded
}

// Mesh adds and checks a mesh configuration file. If there are several, the last good one is used.
func (a *Analysis) Mesh(name string, data []byte) {
	a.Files++
	m, problems := api.DecodeMesh(name, data)
	if m != nil {
		a.mesh = m
	}
	a.problems = append(append(a.problems, problems...), api.UnsupportedMesh(name, data, true)...)
}

// Networks checks a mesh networks file.
func (a *Analysis) Networks(name string, data []byte) {
	a.Files++
	_, problems := api.DecodeNetworks(name, data)
	a.problems = append(a.problems, problems...)
}

// Unreadable adds a problem for a file that could not be read.
func (a *Analysis) Unreadable(name string, err error) {
	a.problems = append(a.problems, api.Problem{Position: api.Position{File: name}, Severity: api.Error, Code: "file-unreadable", Reason: err.Error()})
}

// Problems returns the problems of single documents, ordered by position. It ignores relations between documents: two of one object
// may be for different clusters.
func (a *Analysis) Problems() []api.Problem {
	_, found := a.settings()
	return ordered(slices.Concat(api.MergeRemarks(a.problems), found))
}

// settings returns the mesh configuration that counts, nil for the defaults, and the problems of mesh configurations in documents of other
// kinds. These do not count if there is a file with the mesh configuration.
func (a *Analysis) settings() (used *meshconfig.MeshConfig, problems []api.Problem) {
	if a.mesh != nil {
		return a.mesh, nil
	}
	var first *api.EmbeddedMesh
	for _, e := range a.embedded {
		problems = append(problems, e.Problems...)
		switch {
		case e.Mesh == nil:
		case first == nil:
			first = e
		case !first.Same(e):
			problems = append(problems, api.Problem{
				Position: e.Position, Severity: api.Info, Code: "mesh-config-several",
				Reason: fmt.Sprintf("this mesh configuration is not used, because the one at %v comes first; name the file that counts with --meshConfig", first.Position),
			})
		}
	}
	if first != nil {
		used = first.Mesh
	}
	return used, problems
}

// AllProblems returns all problems of single documents and of relations between objects. domain is the DNS suffix of
// the cluster's services.
func (a *Analysis) AllProblems(domain string) []api.Problem {
	m, done := a.evaluate(domain)
	defer done()
	late := map[api.Key][]api.Problem{}
	for _, p := range m.Problems.All() {
		late[p.Object] = append(late[p.Object], p)
	}
	all := slices.Concat(a.Problems(), a.duplicates(), a.missingSecrets(), a.revocationLists())
	for k, problems := range late {
		if u, ok := a.usable[k]; ok {
			u.document.Locate(problems)
		}
		all = append(all, problems...)
	}
	return ordered(all)
}

// Access returns whether a request is allowed, as if each workload had a connected sidecar.
func (a *Analysis) Access(domain string, d described.Request) (*why.Access, error) {
	m, done := a.evaluate(domain)
	defer done()
	answer, err := m.AskAccess(d)
	if err != nil {
		return nil, err
	}
	answer.Complete()
	return answer, nil
}

// Ingresses returns what gateways serve for a host, or for all hosts if it is empty.
func (a *Analysis) Ingresses(domain, host string) *ingresses.Answer {
	m, done := a.evaluate(domain)
	defer done()
	answer := ingresses.Ask(m, host)
	answer.Complete()
	return answer
}

// Entrance returns who answers a request from outside.
func (a *Analysis) Entrance(domain string, q entrance.Question) *entrance.Answer {
	m, done := a.evaluate(domain)
	defer done()
	return entrance.Mesh{Mesh: m, Now: time.Now()}.Ask(q)
}

// Entrances returns what gateways serve.
func (a *Analysis) Entrances(domain string) *entrance.List {
	m, done := a.evaluate(domain)
	defer done()
	return entrance.Mesh{Mesh: m, Now: time.Now()}.List()
}

// Patches returns what the patches of an EnvoyFilter do.
func (a *Analysis) Patches(domain, namespace, name string) (*patched.Answer, error) {
	m, done := a.evaluate(domain)
	defer done()
	return patched.Mesh{Mesh: m}.Ask(namespace, name)
}

// evaluate evaluates all objects. domain is the DNS suffix of the cluster's services. Call the function at the end.
func (a *Analysis) evaluate(domain string) (m why.Mesh, done func()) {
	tables := state.New(state.Options{Domain: domain, ClusterID: cluster, Sources: []string{sourceName}})
	graph := query.New(tables.DB, query.Options{})
	m = why.Mesh{Tables: tables, Graph: graph, Queries: class.Define(graph, tables)}
	done = m.Queries.Problems.Observe(class.All{}, func(all state.Problems) { m.Problems = all })
	used, _ := a.settings()
	batch := source.Batch{Source: sourceName, Synced: true, Mesh: used}
	for k, u := range a.usable {
		batch.Events = append(batch.Events, source.Event{Key: k, Object: u.object})
	}
	for k, v := range a.values {
		batch.Events = append(batch.Events, source.Event{Key: k, Value: v})
	}
	graph.Commit(func(tx *store.Txn) { tables.Apply(tx, batch) })
	for graph.Slice(sliceCells) {
	}
	return m, done
}

func ordered(list []api.Problem) []api.Problem {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Position.File, b.Position.File), cmp.Compare(a.Position.Line, b.Position.Line), cmp.Compare(a.Position.Column, b.Position.Column),
			a.Object.Compare(b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
