package admin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
)

// maxPlaced is how many new problems at a time are followed to their fields before they are reported.
const maxPlaced = 100

// Problem is a problem as pages and pilotctl show it.
type Problem struct {
	Object Object `json:"object"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Field  string `json:"field,omitempty"`
	Level  string `json:"level"` // error, warning or info
	Reason string `json:"reason"`
	// Code is the kind of problem; package code lists them.
	Code code.Code `json:"code,omitempty"`
	// Revision and Since are the revision and the time of the commit that raised the problem.
	Revision store.Revision `json:"since_revision,omitempty"`
	Since    time.Time      `json:"since,omitzero"`

	// ofObject is true if the position is where the object begins, because the place of the field is not known.
	ofObject bool
}

// Object names an object. Parts that are not known are empty.
type Object struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
}

// NewProblem returns the form of a problem for pages.
func NewProblem(p api.Problem) Problem {
	return Problem{
		Object: Object(p.Object), File: p.Position.File, Line: p.Position.Line, Column: p.Position.Column, Field: p.Field,
		Level: p.Severity.String(), Reason: p.Reason, Code: p.Code,
	}
}

// Key is the object's key.
func (o Object) Key() api.Key { return api.Key(o) }

// compare orders problems by object and place.
func (p Problem) compare(o Problem) int {
	return cmp.Or(p.Object.Key().Compare(o.Object.Key()), cmp.Compare(p.File, o.File), cmp.Compare(p.Line, o.Line),
		cmp.Compare(p.Field, o.Field), cmp.Compare(p.Reason, o.Reason))
}

// Board is the list of problems, with the time when each was raised.
type Board struct {
	mu      sync.Mutex
	current omap.Map[omap.Name, api.Problem]
	since   map[omap.Name]moment
	counts  map[api.Severity]int
	codes   map[code.Code]int
	// fields finds the positions of fields in files; nil if there are no files.
	fields func([]api.Problem)
	// raised and mended are changes that news has not returned yet.
	raised, mended []Problem
}

type moment struct {
	revision store.Revision
	at       time.Time
}

// NewBoard returns an empty board. fields sets the positions of problems to the positions of their fields, where it finds them; it may be nil.
func NewBoard(fields func([]api.Problem)) *Board {
	return &Board{fields: fields, since: make(map[omap.Name]moment), counts: make(map[api.Severity]int), codes: make(map[code.Code]int)}
}

// Update replaces the problems by the problems of a revision, at the cost of the difference.
func (b *Board) Update(revision store.Revision, problems omap.Map[omap.Name, api.Problem]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for c := range omap.Diff(b.current, problems) {
		if c.HadOld {
			b.counts[c.Old.Severity]--
			b.codes[c.Old.Code]--
		} else {
			b.since[c.Key] = moment{revision, now}
			fresh := NewProblem(c.New)
			fresh.Revision, fresh.Since = revision, now
			b.raised = append(b.raised, fresh)
		}
		if c.HasNew {
			b.counts[c.New.Severity]++
			b.codes[c.New.Code]++
		} else {
			gone := NewProblem(c.Old)
			gone.Revision, gone.Since = b.since[c.Key].revision, b.since[c.Key].at
			b.mended = append(b.mended, gone)
			delete(b.since, c.Key)
		}
	}
	b.current = problems
}

// look updates the board with the present problems. It runs on the loop.
func (b *Board) look(v *loop.View) { b.Update(v.Graph.Revision(), v.Problems) }

// News lists the changes of problems since an earlier moment.
type News struct {
	// Revision is the present one.
	Revision store.Revision
	// Raised are new problems, and Mended are former ones. Both have their positions, and the revision and time when they were raised.
	Raised, Mended []Problem
}

// news returns the changes since the last call. It runs on the loop.
func (b *Board) news(v *loop.View) News {
	b.look(v)
	b.mu.Lock()
	defer b.mu.Unlock()
	n := News{Revision: v.Graph.Revision(), Raised: b.raised, Mended: b.mended}
	b.raised, b.mended = nil, nil
	for _, list := range [][]Problem{n.Raised, n.Mended} {
		for i := range list {
			list[i].place(v)
		}
	}
	return n
}

// place sets the position of a problem to the position of its object if it has none. Problems from queries have no position, so
// that moving an object within its file runs no query.
func (p *Problem) place(v *loop.View) {
	if p.File == "" {
		position, _ := v.Tables.Positions.Peek(p.Object.Key())
		p.File, p.Line, p.ofObject = position.File, position.Line, position.File != ""
	}
}

// toFields moves problems from the position of their object to the place of their field, if place finds it in the files. It reads
// files, so it does not run on the loop. A nil place finds nothing.
func toFields(list []Problem, place func([]api.Problem)) {
	var wanted []api.Problem
	var at []int
	for i, p := range list {
		if place != nil && p.ofObject && p.Field != "" {
			wanted = append(wanted, api.Problem{Object: p.Object.Key(), Position: api.Position{File: p.File, Line: p.Line}, Field: p.Field})
			at = append(at, i)
		}
	}
	if len(wanted) == 0 {
		return
	}
	place(wanted)
	for i, p := range wanted {
		one := &list[at[i]]
		one.Line, one.Column = p.Position.Line, p.Position.Column
	}
}

// Follow updates the board after each commit until ctx ends, and reports problems that were raised or mended. First builds raise problems without a commit,
// so it also looks for problems at intervals.
func (b *Board) Follow(ctx context.Context, m loop.Inspector, committed <-chan struct{}, report func(News)) error {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-committed:
		case <-again.C:
		}
		if news, err := loop.Look(ctx, m, b.news); err == nil && len(news.Raised)+len(news.Mended) > 0 {
			toFields(news.Raised[:min(len(news.Raised), maxPlaced)], b.fields)
			report(news)
		}
	}
}

// Problems returns the problems, ordered by object and field.
func (b *Board) Problems() []Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Problem, 0, b.current.Len())
	for name, p := range b.current.All() {
		shown := NewProblem(p)
		shown.Revision, shown.Since = b.since[name].revision, b.since[name].at
		list = append(list, shown)
	}
	slices.SortFunc(list, Problem.compare)
	return list
}

// byCode returns the number of problems of each code that there has been since the start.
func (b *Board) byCode() map[code.Code]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.codes)
}

// count returns the number of problems of each severity.
func (b *Board) count() (errors, warnings int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[api.Error], b.counts[api.Warning]
}
