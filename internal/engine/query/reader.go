package query

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Reader is the handle through which a query reads. It records the reads. A query must not keep it after its run.
type Reader struct {
	g         *Graph
	naive     bool
	glance    bool
	rank      int        // the space of the running cell, which may read only lower ones
	reads     []store.ID // the reads of the running cell and, before index base, the reads of the cells that wait for it
	base      int
	computed  []computedCell // cells that were computed because the running cell read them; to be linked
	needs     []store.ID     // collections that must be built before an aborted cell can run
	abandoned []store.ID     // new cells and leaves that aborted runs have read; they may have no users
}

// computedCell is a cell that was computed on demand, with the reads that will become edges.
type computedCell struct {
	id     store.ID
	reads  []store.ID
	defect defect
}

// outcome is the outcome of one run of a cell.
type outcome uint8

const (
	done outcome = iota
	aborted
	panicked
)

// errNotBuilt aborts the run of a cell that needs a collection which is not built yet.
var errNotBuilt = errors.New("query: a collection is not built yet")

// ruleError is a violation of a rule of this package: a bug in a query, not bad input.
type ruleError string

// Read records that the running cell read a leaf or cell.
func (r *Reader) Read(id store.ID) {
	if r.naive || r.glance {
		return
	}
	if slices.Contains(r.reads[r.base:], id) {
		return
	}
	r.reads = append(r.reads, id)
	if n := len(r.reads) - r.base; n > failLimit || n > readLimit && r.g.options.Strict {
		panic(ruleError(fmt.Sprintf("%s reads more than %d things: use Each or GroupBy", r.g.bases[r.rank].name, n-1)))
	}
}

// Naive reports whether this reader evaluates from the rows alone.
func (r *Reader) Naive() bool { return r.naive }

// Naive returns a reader that evaluates queries from the rows alone. It remembers and records nothing and finds groups by
// scanning. It must not be used while a commit is open.
func (g *Graph) Naive() *Reader { return &Reader{g: g, naive: true, rank: math.MaxInt} }

// Glancing reports whether this reader uses existing results and records nothing.
func (r *Reader) Glancing() bool { return r.glance }

// Glance returns a reader for questions about the present revision. It uses the values of existing cells, evaluates everything
// else as the naive reader does, and changes nothing in the graph. Between commits both readers return the same results, except
// that a failed cell returns its last good value, which is the value in use. The cost is the evaluation of results that
// have no cell. It is for the owner of the graph, between commits.
func (g *Graph) Glance() *Reader { return &Reader{g: g, glance: true, rank: math.MaxInt} }

// checkRank panics unless the running cell may read the space.
func (r *Reader) checkRank(space int) {
	if space >= r.rank {
		panic(ruleError(fmt.Sprintf("%s reads %s, which is not defined before it", r.g.bases[r.rank].name, r.g.bases[space].name)))
	}
}

// enter starts to record the reads of a cell. It returns the arguments for leave.
func (r *Reader) enter(space int) (base, rank int) {
	base, rank = r.base, r.rank
	r.base, r.rank = len(r.reads), space
	return base, rank
}

// leave ends the recording and returns the reads. They are valid until the next call of enter.
func (r *Reader) leave(base, rank int) []store.ID {
	reads := r.reads[r.base:]
	r.reads = r.reads[:r.base]
	r.base, r.rank = base, rank
	return reads
}

// protect calls fn and converts a panic into an outcome. In a strict graph, a violation of a rule remains a panic.
func (r *Reader) protect(fn func()) (out outcome, reason string) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == any(errNotBuilt) {
			out = aborted
			return
		}
		if rule, ok := p.(ruleError); ok {
			if r.g.options.Strict {
				panic(p)
			}
			out, reason = panicked, string(rule)
			return
		}
		out, reason = panicked, fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
	}()
	fn()
	return done, ""
}

// wait aborts the run of the cell until the collection is built.
func (r *Reader) wait(id store.ID) {
	r.needs = append(r.needs, id)
	panic(errNotBuilt)
}
