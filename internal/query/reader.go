package query

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/pilotmesh/pilot/internal/store"
)

// Reader is the only handle a query has on the world; it records what was read. It is valid only during the call it was
// passed to.
type Reader struct {
	g      *Graph
	naive  bool
	glance bool
	rank   int        // the running cell's space: it may read lower ones only
	reads  []store.ID // of the running cell and, before base, of the cells that wait for it
	base   int
	fresh  []linkage  // cells computed on the way, to be linked
	needs  []store.ID // collections that must be built before a cell that gave up can run
	lost   []store.ID // first-time cells and leaves of runs that gave up: nobody may be using them
}

// linkage is a cell with the reads that are to become edges.
type linkage struct {
	id      store.ID
	reads   []store.ID
	verdict verdict
}

// outcome of one run of a cell.
type outcome uint8

const (
	done outcome = iota
	gaveUp
	panicked
)

// errGiveUp unwinds a cell that needs a collection which is not built yet.
var errGiveUp = errors.New("query: a collection is not built yet")

// ruleError is a broken rule of the kernel: a bug in a query, not bad input.
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
	if len(r.reads)-r.base > ReadLimit && r.g.options.Strict {
		panic(ruleError(fmt.Sprintf("%s reads more than %d things: use Each or GroupBy", r.g.spaces[r.rank].label(), ReadLimit)))
	}
}

// Naive reports whether this reader evaluates from the rows alone.
func (r *Reader) Naive() bool { return r.naive }

// Naive returns a reader that evaluates queries from the rows alone: no memo, no recording, groups by scan.
// It must not be used while a commit is being written.
func (g *Graph) Naive() *Reader { return &Reader{g: g, naive: true, rank: math.MaxInt} }

// Glancing reports whether this reader takes what there is and leaves no trace.
func (r *Reader) Glancing() bool { return r.glance }

// Glance returns a reader for questions about the present revision: it takes what cells hold, works out what no cell
// holds as the naive reader does, and leaves no trace. What is ready between commits is settled, so that both readers
// give the same (a cell that failed gives its last good value, which is what is served); the cost is that of the question.
// It is for the owner, between commits.
func (g *Graph) Glance() *Reader { return &Reader{g: g, glance: true, rank: math.MaxInt} }

// below checks that the running cell may read the space.
func (r *Reader) below(space int) {
	if space >= r.rank {
		panic(ruleError(fmt.Sprintf("%s reads %s, which is not defined before it", r.g.spaces[r.rank].label(), r.g.spaces[space].label())))
	}
}

// enter begins the recording of a cell's reads and returns what leave needs to end it.
func (r *Reader) enter(space int) (base, rank int) {
	base, rank = r.base, r.rank
	r.base, r.rank = len(r.reads), space
	return base, rank
}

// leave ends the recording; the reads are valid until the next one begins.
func (r *Reader) leave(base, rank int) []store.ID {
	reads := r.reads[r.base:]
	r.reads = r.reads[:r.base]
	r.base, r.rank = base, rank
	return reads
}

// protect runs fn and turns its panic into an outcome. A broken rule passes in strict graphs.
func (r *Reader) protect(fn func()) (out outcome, reason string) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == any(errGiveUp) {
			out = gaveUp
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

// wait gives the running cell up until the collection is built.
func (r *Reader) wait(id store.ID) {
	r.needs = append(r.needs, id)
	panic(errGiveUp)
}
