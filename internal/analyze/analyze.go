// Package analyze judges configuration without a control plane, as a control plane would.
//
// It owns the order of judgement: each document by itself (package api), the same object twice, and then what the objects
// mean together, which is found by the very queries that a running control plane keeps up to date (package problem). The
// graph they run on is the analysis's own, and ends with it. The package opens no files, starts no goroutines, and must not
// import push or server.
package analyze

import (
	"cmp"
	"fmt"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// sourceName is the source that all objects seem to come from.
const sourceName = "analysis"

// sliceCells is how many cells run between two looks at whether there are more.
const sliceCells = 10_000

// Analysis is what was read so far.
type Analysis struct {
	// Files and Objects count what was read, and what of it can be used.
	Files, Objects int

	first    map[api.Key]api.Position // where each object was seen first
	usable   map[api.Key]usable
	mesh     *meshconfig.MeshConfig
	problems []api.Problem
}

// usable is an object, and its document as it was before it was checked: it can still tell the lines of fields.
type usable struct {
	object   *api.Object
	document api.Document
}

// New returns an analysis of nothing.
func New() *Analysis {
	return &Analysis{first: make(map[api.Key]api.Position), usable: make(map[api.Key]usable)}
}

// File takes in the documents of a file.
func (a *Analysis) File(name string, data []byte) {
	a.Files++
	for _, doc := range api.Decode(name, data) {
		text := doc
		doc.Check()
		if doc.Identified && a.seen(&doc) {
			doc.Object = nil
		}
		if doc.Object != nil {
			a.Objects++
			a.usable[doc.Key] = usable{doc.Object, text}
		}
		a.problems = append(a.problems, doc.Problems...)
	}
}

// seen objects to a second document of the same object.
func (a *Analysis) seen(doc *api.Document) bool {
	first, again := a.first[doc.Key]
	if !again {
		a.first[doc.Key] = doc.Position
		return false
	}
	doc.Problems = append(doc.Problems, api.Problem{
		Object: doc.Key, Position: doc.Position, Severity: api.Error, Field: "metadata.name",
		Reason: fmt.Sprintf("this object was declared already at %s, which is the one in force; remove or rename one", first),
	})
	return true
}

// Mesh takes in a file of mesh settings; of several the last good one counts.
func (a *Analysis) Mesh(name string, data []byte) {
	a.Files++
	m, problems := api.DecodeMesh(name, data)
	if m != nil {
		a.mesh = m
	}
	a.problems = append(append(a.problems, problems...), api.UnsupportedMesh(name, data)...)
}

// Networks takes in a file of mesh networks.
func (a *Analysis) Networks(name string, data []byte) {
	a.Files++
	_, problems := api.DecodeNetworks(name, data)
	a.problems = append(a.problems, problems...)
}

// Unreadable notes that a file could not be read.
func (a *Analysis) Unreadable(name string, err error) {
	a.problems = append(a.problems, api.Problem{Position: api.Position{File: name}, Severity: api.Error, Reason: err.Error()})
}

// Problems are those of the documents by themselves, by place.
func (a *Analysis) Problems() []api.Problem { return ordered(a.problems) }

// Together are all problems: those of the documents, and those that show only when the objects are seen together, in a
// mesh whose cluster hosts end in domain.
func (a *Analysis) Together(domain string) []api.Problem {
	tables := state.New(state.Options{Domain: domain, Sources: []string{sourceName}})
	graph := query.New(tables.DB, query.Options{})
	queries := class.Define(graph, tables)
	var found state.Problems
	defer queries.Problems.Observe(class.All{}, func(all state.Problems) { found = all })()
	batch := source.Batch{Source: sourceName, Synced: true, Mesh: a.mesh}
	for k, u := range a.usable {
		batch.Events = append(batch.Events, source.Event{Key: k, Object: u.object})
	}
	graph.Commit(func(tx *store.Txn) { tables.Apply(tx, batch) })
	for graph.Slice(sliceCells) {
	}
	late := map[api.Key][]api.Problem{}
	for _, p := range found.All() {
		late[p.Object] = append(late[p.Object], p)
	}
	all := slices.Clip(a.problems)
	for k, problems := range late {
		if u, ok := a.usable[k]; ok {
			u.document.Locate(problems)
		}
		all = append(all, problems...)
	}
	return ordered(all)
}

func ordered(list []api.Problem) []api.Problem {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Position.File, b.Position.File), cmp.Compare(a.Position.Line, b.Position.Line),
			a.Object.Compare(b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
