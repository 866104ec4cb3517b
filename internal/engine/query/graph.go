package query

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// readLimit is the largest number of different things that one cell should read. A cell that reads more should be a collection.
const readLimit = 200

// failLimit is the largest number of different things that one cell may read. Its run ends there and counts as failed, as if it had
// panicked: the cost of a cell is bounded, whatever users write.
const failLimit = 10 * readLimit

// sweepBudget is the largest number of unused cells that one Commit or Slice frees, which takes about a millisecond.
const sweepBudget = 2000

// Graph holds the cells of all queries over one store.
type Graph struct {
	db            *store.DB
	options       Options
	spaces        []space     // queries and collections by number
	bases         []*base     // of the spaces, so that a node is found without a call of an interface
	leaves        []leafSpace // users of rows and groups, by the number of their table or index
	rev           store.Revision
	queues        [2][][]uint32 // by lane and space: slots of cells that wait to run
	roots         map[store.ID]*root
	publish       []store.ID // roots whose observers have to be called once nothing that they need is waiting
	orphans       []store.ID // cells that may have lost their last user
	unread        []store.ID // leaves that may have lost their last user; checked when all edges of a batch are made
	faults        map[store.ID]Fault
	changedFaults []store.ID // cells whose fault appeared, changed or was resolved since the last TakeFaults
	ran           []int      // by space: the number of cells that have run since the last Commit began
	budget        int        // how many more cells the current slice may run
	main          *Reader
	workers       []*Reader
	parallel      bool // several goroutines are running cells, so cells must be locked
}

// Options configure a graph.
type Options struct {
	// Workers is the number of goroutines that run the cells of a large batch (default 1).
	Workers int
	// ParallelFrom is the batch size from which all workers are used (default 64).
	ParallelFrom int
	// Portion is the number of elements that a first build of a collection adds at a time (default 500, which takes about
	// a millisecond).
	Portion int
	// Strict makes a violation of a rule (rank, number of reads, elements with one key or outputs with one name) a panic
	// instead of a Fault of the cell. Tests set it.
	Strict bool
}

// space is the view that the graph has of a query, collection, grouping or list of layers.
type space interface {
	common() *base
	key(slot uint32) string
	run(slots []uint32, lane lane) // runs the cells; everything of lower rank is up to date
	drop(slot uint32)              // frees an unused cell, whose reads have been unlinked
}

// New returns a graph over db.
func New(db *store.DB, o Options) *Graph {
	if o.Workers < 1 {
		o.Workers = 1
	}
	if o.ParallelFrom < 1 {
		o.ParallelFrom = 64
	}
	if o.Portion < 1 {
		o.Portion = 500
	}
	g := &Graph{db: db, options: o, roots: make(map[store.ID]*root), faults: make(map[store.ID]Fault)}
	for range o.Workers {
		g.workers = append(g.workers, &Reader{g: g})
	}
	g.main = g.workers[0]
	return g
}

// add adds a space and assigns its number.
func (g *Graph) add(s space) {
	b := s.common()
	b.space = len(g.spaces)
	g.spaces, g.bases = append(g.spaces, s), append(g.bases, b)
	g.ran = append(g.ran, 0)
	for l := range g.queues {
		g.queues[l] = append(g.queues[l], nil)
	}
}

// Revision returns the revision of the store at the last commit.
func (g *Graph) Revision() store.Revision { return g.rev }

// Cost returns the number of cells that have run since the last Commit began, by query. Queries that did not run are omitted.
func (g *Graph) Cost() map[string]int {
	cost := make(map[string]int)
	for i, n := range g.ran {
		if n > 0 {
			cost[g.bases[i].name] += n
		}
	}
	return cost
}

// Cells returns the number of cells by query.
func (g *Graph) Cells() map[string]int {
	cells := make(map[string]int)
	for _, b := range g.bases {
		if b.live > 0 {
			cells[b.name] += b.live
		}
	}
	return cells
}

// Commit runs write in one transaction, commits it, and recomputes what complete roots need. It calls the observers of the
// roots that changed and returns the revision. A commit that changes no row runs no cell.
func (g *Graph) Commit(write func(*store.Txn)) store.Revision {
	clear(g.ran)
	tx := g.db.Begin()
	func() {
		// If write panics, the writes that it made are committed all the same, and the caller gets the panic.
		defer func() {
			var touched []store.ID
			g.rev, touched = tx.Commit()
			for _, id := range touched {
				g.touchLeaf(id)
			}
		}()
		write(tx)
	}()
	g.drain(laneUpdate)
	g.finish()
	return g.rev
}

// Slice runs cells of roots that have never been complete, up to max cells or work of equal cost. It reports whether more
// work remains, either cells to run or cells to free.
func (g *Graph) Slice(max int) bool {
	g.budget = max
	for g.budget > 0 {
		n := g.step(laneBuild, g.budget)
		if n == 0 {
			break
		}
		g.budget -= n
		g.drain(laneUpdate) // cells that the slice has moved to laneUpdate
	}
	g.finish()
	return g.Pending()
}

// Pending reports whether Slice has work to do.
func (g *Graph) Pending() bool {
	return g.lowest(laneBuild) >= 0 || len(g.orphans) > 0 || len(g.publish) > 0
}

func (g *Graph) finish() {
	g.publishRoots()
	if g.lowest(laneBuild) < 0 {
		g.sweep(sweepBudget)
	}
}

// touchLeaf makes the cells run that read a changed row or group.
func (g *Graph) touchLeaf(id store.ID) {
	users := g.users(id)
	if users == nil || users.none() {
		g.db.Release(id) // a deleted row without readers
		return
	}
	for u := range users.all() {
		g.enqueueUser(u)
	}
}

// leafSpace holds the users of the rows of a table or of the groups of an index, by slot.
type leafSpace struct {
	users []userSet
	read  int // the number of leaves with users
}

// users returns the users of a leaf or cell, or nil for a leaf without users.
func (g *Graph) users(id store.ID) *userSet {
	s, n := id.Space(), int(id.Slot())
	if !id.Leaf() {
		return &g.nodeOf(id).users
	}
	if s >= len(g.leaves) || n >= len(g.leaves[s].users) {
		return nil
	}
	return &g.leaves[s].users[n]
}

// link adds the edge that user reads from.
func (g *Graph) link(from, user store.ID) {
	if !from.Leaf() {
		g.nodeOf(from).users.add(user)
		return
	}
	s, n := from.Space(), int(from.Slot())
	if s >= len(g.leaves) {
		g.leaves = append(g.leaves, make([]leafSpace, s+1-len(g.leaves))...)
	}
	leaf := &g.leaves[s]
	if n >= len(leaf.users) {
		grown := make([]userSet, n+1+n/2)
		copy(grown, leaf.users)
		leaf.users = grown
	}
	if leaf.users[n].none() {
		leaf.read++
	}
	leaf.users[n].add(user)
}

// unlink removes the edge that user reads from.
func (g *Graph) unlink(from, user store.ID) {
	users := g.users(from)
	users.remove(user)
	if !users.none() {
		return
	}
	if !from.Leaf() {
		g.orphan(from, g.nodeOf(from))
		return
	}
	g.unread = append(g.unread, from)
	leaf := &g.leaves[from.Space()]
	if leaf.read--; leaf.read == 0 {
		leaf.users = nil
	}
}

// releaseLeaves releases the leaves that lost their last user. It must run after all edges of a batch have been made, because
// another cell of the batch may have read the same leaf.
func (g *Graph) releaseLeaves() {
	for _, id := range g.unread {
		if users := g.users(id); users == nil || users.none() {
			g.db.Release(id)
		}
	}
	g.unread = g.unread[:0]
}

func (g *Graph) nodeOf(id store.ID) *node { return g.bases[id.Space()].node(id.Slot()) }

func (g *Graph) name(id store.ID) (query, key string) {
	if !id.Leaf() {
		return g.bases[id.Space()].name, g.spaces[id.Space()].key(id.Slot())
	}
	leaf := g.db.Describe(id)
	return leaf.Space, fmt.Sprint(leaf.Key)
}
