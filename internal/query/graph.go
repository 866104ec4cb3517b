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
	spaces   []space // by ID space; nil for tables and indexes
	leaves   []leafSpace
	rev      store.Revision
	queues   [2][][]uint32 // by lane and space: slots with work
	roots    map[store.ID]*root
	publish  []store.ID // roots to publish when nothing they need is waiting
	orphans  []store.ID // cells that may have lost their last user
	failures map[store.ID]Failure
	ran      []int // cells run per space since the last Commit began
	budget   int   // how many more cells the slice at hand may run
	portion  int   // how many elements a first build of a collection takes in at a time: about a millisecond's worth
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
	// Strict makes a broken rule of the kernel (rank, too many reads, two elements with one output name) a panic
	// instead of a failure of the cell. Tests set it.
	Strict bool
}

// Failure is a cell whose last run panicked, or that broke a rule of the kernel.
type Failure struct {
	Cell     ID
	Query    string
	Key      string
	Reason   string
	Revision store.Revision
	Kept     bool // a last good value is still served
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

// New returns a graph over db. All tables and indexes must have been added to db before.
func New(db *store.DB, o Options) *Graph {
	if o.Workers < 1 {
		o.Workers = 1
	}
	if o.ParallelFrom < 1 {
		o.ParallelFrom = 64
	}
	n := db.Spaces()
	g := &Graph{
		db: db, options: o,
		spaces: make([]space, n), leaves: make([]leafSpace, n), ran: make([]int, n),
		portion: 500, roots: make(map[store.ID]*root), failures: make(map[store.ID]Failure),
	}
	g.queues = [2][][]uint32{make([][]uint32, n), make([][]uint32, n)}
	for range o.Workers {
		g.workers = append(g.workers, &Reader{g: g})
	}
	g.main = g.workers[0]
	return g
}

func (g *Graph) add(s space) int {
	if len(g.spaces) == store.MaxSpaces {
		panic(fmt.Sprintf("query: more than %d tables, indexes and queries", store.MaxSpaces))
	}
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
		if s != nil && s.live() > 0 {
			cells[s.label()] += s.live()
		}
	}
	return cells
}

// Failures lists the flagged cells in no particular order.
func (g *Graph) Failures() []Failure {
	list := make([]Failure, 0, len(g.failures))
	for _, f := range g.failures {
		list = append(list, f)
	}
	return list
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
	if users == nil || len(users.list) == 0 {
		g.db.Release(id) // absent and unread: a row that was deleted
		return
	}
	for _, u := range users.list {
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
	s, n := id.Space(), id.Slot()
	if sp := g.spaces[s]; sp != nil {
		return &sp.node(n).users
	}
	if int(n) >= len(g.leaves[s].users) {
		return nil
	}
	return &g.leaves[s].users[n]
}

// link adds one edge.
func (g *Graph) link(from, user store.ID) {
	s, n := from.Space(), int(from.Slot())
	if sp := g.spaces[s]; sp != nil {
		sp.node(from.Slot()).users.add(user)
		return
	}
	leaf := &g.leaves[s]
	if n >= len(leaf.users) {
		grown := make([]userSet, n+1+n/2)
		copy(grown, leaf.users)
		leaf.users = grown
	}
	if len(leaf.users[n].list) == 0 {
		leaf.read++
	}
	leaf.users[n].add(user)
}

// unlink takes one edge away.
func (g *Graph) unlink(from, user store.ID) {
	users := g.users(from)
	users.remove(user)
	if len(users.list) > 0 {
		return
	}
	if g.spaces[from.Space()] != nil {
		g.orphan(from, g.nodeOf(from))
		return
	}
	g.db.Release(from)
	leaf := &g.leaves[from.Space()]
	if leaf.read--; leaf.read == 0 {
		leaf.users = nil
	}
}

func (g *Graph) nodeOf(id store.ID) *node { return g.spaces[id.Space()].node(id.Slot()) }

func (g *Graph) name(id store.ID) (query, key string) {
	if s := g.spaces[id.Space()]; s != nil {
		return s.label(), fmt.Sprint(s.key(id.Slot()))
	}
	leaf := g.db.Describe(id)
	return leaf.Space, fmt.Sprint(leaf.Key)
}

func (g *Graph) fail(id store.ID, reason string, kept bool) {
	query, key := g.name(id)
	g.failures[id] = Failure{Cell: id, Query: query, Key: key, Reason: reason, Revision: g.rev, Kept: kept}
}
