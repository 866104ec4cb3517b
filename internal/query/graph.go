package query

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/store"
)

// ReadLimit is how many different things one cell may read. More is a list that should be a collection.
const ReadLimit = 200

// sweepBudget is how many unused cells one Commit or Slice frees: about a millisecond's worth.
const sweepBudget = 2000

// Graph holds the cells of all queries over one store.
type Graph struct {
	db       *store.DB
	options  Options
	spaces   []space     // queries and collections, by the space of their cells
	leaves   []leafSpace // who reads rows and groups, by the space of those
	rev      store.Revision
	queues   [2][][]uint32 // by lane and space: slots with work
	roots    map[store.ID]*root
	publish  []store.ID // roots to publish when nothing they need is waiting
	orphans  []store.ID // cells that may have lost their last user
	unread   []store.ID // leaves that may have lost their last user; looked at when all edges of a batch are made
	faults   map[store.ID]Fault
	judged   []store.ID // cells whose fault came, changed or went since TakeFaults was called last
	ran      []int      // cells run per space since the last Commit began
	budget   int        // how many more cells the slice at hand may run
	main     *Reader
	workers  []*Reader
	parallel bool // several goroutines are running cells: lock
}

// Options of a graph.
type Options struct {
	// Workers is the number of goroutines that run the cells of a large batch (default 1).
	Workers int
	// ParallelFrom is the batch size from which all workers are used (default 64).
	ParallelFrom int
	// Portion is how many elements a first build of a collection takes in at a time (default 500, which takes about a
	// millisecond).
	Portion int
	// Strict makes a broken rule of the kernel (rank, too many reads, elements with one key or one output name) a panic
	// instead of a fault of the cell. Tests set it.
	Strict bool
}

// space is what a query or collection is to the graph.
type space interface {
	label() string
	node(slot uint32) *node
	key(slot uint32) any
	run(slots []uint32, lane lane) // settles the cells; everything of lower rank is settled
	drop(slot uint32)              // frees an unused cell; its reads are unlinked already
	live() int
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

func (g *Graph) add(s space) int {
	g.spaces = append(g.spaces, s)
	g.ran = append(g.ran, 0)
	for l := range g.queues {
		g.queues[l] = append(g.queues[l], nil)
	}
	return len(g.spaces) - 1
}

// Revision is the store's revision at the last commit.
func (g *Graph) Revision() store.Revision { return g.rev }

// Cost counts the cells that ran since the last Commit began, by query; queries that did not run are left out.
func (g *Graph) Cost() map[string]int {
	cost := make(map[string]int)
	for i, n := range g.ran {
		if n > 0 {
			cost[g.spaces[i].label()] += n
		}
	}
	return cost
}

// Cells counts the live cells by query.
func (g *Graph) Cells() map[string]int {
	cells := make(map[string]int)
	for _, s := range g.spaces {
		if s.live() > 0 {
			cells[s.label()] += s.live()
		}
	}
	return cells
}

// Commit lets write fill one transaction, commits it and recomputes what complete roots need of it. It publishes the
// roots that changed and returns the revision; a commit that changed no row runs nothing.
func (g *Graph) Commit(write func(*store.Txn)) store.Revision {
	clear(g.ran)
	tx := g.db.Begin()
	func() {
		// A write that panics has written part of its batch: that part is committed, the caller hears of the panic.
		defer func() {
			var touched []store.ID
			g.rev, touched = tx.Commit()
			for _, id := range touched {
				g.touchLeaf(id)
			}
		}()
		write(tx)
	}()
	g.drain(lane0)
	g.finish()
	return g.rev
}

// Slice runs up to max cells, or what costs as much, of roots that have never been complete and reports whether there is
// more to do, building or freeing.
func (g *Graph) Slice(max int) bool {
	g.budget = max
	for g.budget > 0 {
		n := g.step(lane1, g.budget)
		if n == 0 {
			break
		}
		g.budget -= n
		g.drain(lane0) // what the slice promoted
	}
	g.finish()
	return g.Pending()
}

// Pending reports whether there is something for Slice to do.
func (g *Graph) Pending() bool {
	return g.lowest(lane1) >= 0 || len(g.orphans) > 0 || len(g.publish) > 0
}

func (g *Graph) finish() {
	g.publishRoots()
	if g.lowest(lane1) < 0 {
		g.sweep(sweepBudget)
	}
}

// touchLeaf makes the readers of a changed row or group run.
func (g *Graph) touchLeaf(id store.ID) {
	users := g.users(id)
	if users == nil || users.none() {
		g.db.Release(id) // absent and unread: a row that was deleted
		return
	}
	for u := range users.all() {
		g.enqueueUser(u)
	}
}

// leafSpace holds the users of a table's rows or an index's groups, by slot.
type leafSpace struct {
	users []userSet
	read  int // how many have users
}

// users returns who reads the leaf or cell; nil for a leaf nobody reads.
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

// link adds one edge.
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

// unlink takes one edge away.
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

// releaseLeaves gives the leaves back that nobody reads any longer. It must not run before all edges of a batch are made:
// another cell of the batch may have read the same leaf.
func (g *Graph) releaseLeaves() {
	for _, id := range g.unread {
		if users := g.users(id); users == nil || users.none() {
			g.db.Release(id)
		}
	}
	g.unread = g.unread[:0]
}

func (g *Graph) nodeOf(id store.ID) *node { return g.spaces[id.Space()].node(id.Slot()) }

func (g *Graph) name(id store.ID) (query, key string) {
	if !id.Leaf() {
		s := g.spaces[id.Space()]
		return s.label(), fmt.Sprint(s.key(id.Slot()))
	}
	leaf := g.db.Describe(id)
	return leaf.Space, fmt.Sprint(leaf.Key)
}
