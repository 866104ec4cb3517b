package query

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Query is a memoised pure function of a key.
//
// Query, Collection, Groups and Layers are interfaces so that only the package that defines one compiles the code behind it.
// The compiler translates all methods of a generic struct in every package that can see a value of it, which were 30,000
// functions and 150 MB in each package that reads queries.
type Query[K comparable, V any] interface {
	// Get returns the result for k and records the read.
	Get(r *Reader, k K) (V, bool)
	// Observe makes the result for k a root. The following Slices compute it. After that, Commit or Slice calls fn with each
	// new result, once nothing that the root needs is waiting to run. fn runs on the owner's goroutine and must not use the
	// graph. The returned function ends the observation. A key can have only one observer at a time.
	Observe(k K, fn func(v V, ok bool)) (release func())
	// Cell returns the cell of k, if it has been computed.
	Cell(k K) (ID, bool)
	// KeyOf returns the key of a cell; false if the cell is one of another query.
	KeyOf(id ID) (k K, ok bool)
}

// memo is a query with its cells.
type memo[K comparable, V any] struct {
	g     *Graph
	name  string
	space int
	eq    func(a, b V) bool
	fn    func(r *Reader, k K) (V, bool)
	deny  *V // the result of a run that panics, if the query guards access; otherwise nil
	cells[K, V]
	waits map[uint32]chan struct{}                     // by slot: closed when the first computation of the cell ends; used while cells run in parallel
	sinks map[int]func(collection, elem uint32, old V) // by space: called when a cell changes that is an element of a collection in that space
}

// Define adds a query. It may read only tables, indexes and queries that were defined before it. eq decides whether a new
// result equals the old one; if it does, the cells that read the result do not run again.
//
// fn must be pure: it uses no goroutine, clock, I/O or mutable state, its result is immutable, and the result does not depend
// on the iteration order of Go maps. fn returns ok == false if there is no result for the key.
func Define[K comparable, V any](g *Graph, name string, eq func(a, b V) bool, fn func(r *Reader, k K) (V, bool)) Query[K, V] {
	return define(g, name, eq, fn)
}

func define[K comparable, V any](g *Graph, name string, eq func(a, b V) bool, fn func(r *Reader, k K) (V, bool)) *memo[K, V] {
	q := &memo[K, V]{g: g, name: name, eq: eq, fn: fn}
	q.cells.g = g
	q.waits = make(map[uint32]chan struct{})
	q.sinks = make(map[int]func(uint32, uint32, V))
	q.space = g.add(q)
	return q
}

// Guard adds a query whose result controls access, such as access to a secret. If a run panics, the result is deny: the
// last good value, or an absent result, could grant access that must be denied.
func Guard[K comparable, V any](g *Graph, name string, eq func(a, b V) bool, deny V, fn func(r *Reader, k K) (V, bool)) Query[K, V] {
	q := define(g, name, eq, fn)
	q.deny = &deny
	return q
}

func (q *memo[K, V]) Get(r *Reader, k K) (V, bool) {
	r.checkRank(q.space)
	if r.glance {
		if c, _, ok := q.find(k); ok && c.flags&ready != 0 {
			return c.val, c.flags&present != 0
		}
	}
	if r.naive || r.glance {
		return q.evaluateNaively(r, k)
	}
	q.rlock()
	c, slot, ok := q.find(k)
	settled := ok && c.flags&ready != 0
	q.runlock()
	if !settled {
		c, slot = q.demand(r, k)
	}
	r.Read(store.CellID(q.space, slot))
	return c.val, c.flags&present != 0
}

// evaluateNaively runs fn without a cell. A panic makes the result absent, or deny, as for a cell.
func (q *memo[K, V]) evaluateNaively(r *Reader, k K) (v V, ok bool) {
	rank := r.rank
	r.rank = q.space
	out, _ := r.protect(func() { v, ok = q.fn(r, k) })
	r.rank = rank
	if out == panicked && q.deny != nil {
		return *q.deny, true
	}
	if out != done || !ok {
		var none V
		return none, false
	}
	return v, ok
}

// demand computes a cell for the first time, because the running cell reads it. It returns the computed cell.
func (q *memo[K, V]) demand(r *Reader, k K) (*entry[K, V], uint32) {
	q.lock()
	c, slot := q.ensure(k)
	for c.flags&computing != 0 {
		ready := q.waits[slot]
		q.unlock()
		<-ready
		q.lock()
	}
	if c.flags&ready != 0 { // another worker has computed it
		q.unlock()
		return c, slot
	}
	c.flags |= computing
	if q.g.parallel {
		q.waits[slot] = make(chan struct{})
	}
	q.unlock()

	id := store.CellID(q.space, slot)
	base, rank := r.enter(q.space)
	var v V
	var ok bool
	out, reason := r.protect(func() { v, ok = q.fn(r, k) })
	reads := r.leave(base, rank)
	var found defect

	q.lock()
	c.flags &^= computing
	switch {
	case out == aborted:
		r.abandoned = append(append(r.abandoned, reads...), id)
	case out == panicked:
		c.flags |= ready | failed
		found = defect{kind: Panicked, reason: reason}
		if q.deny != nil {
			c.val = *q.deny
			c.flags |= present
		}
	case ok:
		c.val = v
		c.flags |= ready | present
	default:
		c.flags |= ready
	}
	c.changed = q.g.rev
	if wait := q.waits[slot]; wait != nil {
		close(wait)
		delete(q.waits, slot)
	}
	q.unlock()
	if out == aborted {
		panic(errNotBuilt)
	}
	r.computed = append(r.computed, computedCell{id, slices.Clone(reads), found})
	return c, slot
}

// result is the outcome of one run of a cell.
type result[V any] struct {
	val    V
	ok     bool
	out    outcome
	reads  []store.ID // nil: the same reads as in the previous run
	reason string
}

func (q *memo[K, V]) run(slots []uint32, in lane) {
	results := make([]result[V], len(slots))
	q.g.runParallel(len(slots), func(r *Reader, i int) { results[i] = q.evaluate(r, slots[i]) })
	for _, r := range q.g.workers {
		q.g.absorb(r, in)
	}
	for i, slot := range slots {
		q.settle(slot, &results[i], in)
	}
}

func (q *memo[K, V]) evaluate(r *Reader, slot uint32) (res result[V]) {
	c := q.at(slot)
	base, rank := r.enter(q.space)
	out, reason := r.protect(func() { res.val, res.ok = q.fn(r, c.key) })
	reads := r.leave(base, rank)
	res.out, res.reason = out, reason
	if !slices.Equal(reads, c.reads) {
		res.reads = append(make([]store.ID, 0, len(reads)), reads...)
	}
	if out == aborted {
		r.abandoned = append(r.abandoned, reads...)
	}
	return res
}

// settle stores a result. If it differs from the old one, the cells that read it are enqueued.
func (q *memo[K, V]) settle(slot uint32, res *result[V], in lane) {
	g, c, id := q.g, q.at(slot), store.CellID(q.space, slot)
	if res.out == aborted {
		g.enqueue(id, in)
		return
	}
	g.ran[q.space]++
	if res.reads != nil {
		g.relink(id, &c.node, res.reads)
	}
	first := c.flags&ready == 0
	c.flags = c.flags&^failed | ready
	switch {
	case res.out != panicked:
		g.recordFault(id, &c.node, defect{})
	case q.deny != nil:
		c.flags |= failed
		g.recordFault(id, &c.node, defect{kind: Panicked, reason: res.reason})
		res.val, res.ok = *q.deny, true
	default:
		c.flags |= failed
		g.recordFault(id, &c.node, defect{Panicked, res.reason, c.flags&present != 0})
		if first {
			q.changed(c, id, c.val)
		}
		return
	}
	was := c.flags&present != 0
	if !first && was == res.ok && (!was || q.eq(c.val, res.val)) {
		return
	}
	old := c.val
	c.val, c.flags = res.val, c.flags&^present
	if res.ok {
		c.flags |= present
	} else {
		var none V
		c.val = none
	}
	q.changed(c, id, old)
}

// changed enqueues every cell that read the changed cell c, and publishes c if it is a root.
func (q *memo[K, V]) changed(c *entry[K, V], id store.ID, old V) {
	c.changed = q.g.rev
	for u := range c.users.all() {
		if note := q.sinks[u.Space()]; note != nil {
			note(u.Slot(), id.Slot(), old)
		}
		q.g.enqueueUser(u)
	}
	if c.flags&observed != 0 {
		q.g.publish = append(q.g.publish, id)
	}
}

func (q *memo[K, V]) label() string       { return q.name }
func (q *memo[K, V]) key(slot uint32) any { return q.at(slot).key }

// runParallel calls fn for 0 to n-1. It uses all workers if n is at least Options.ParallelFrom.
func (g *Graph) runParallel(n int, fn func(r *Reader, i int)) {
	if n < g.options.ParallelFrom || len(g.workers) == 1 {
		for i := range n {
			fn(g.main, i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	broken := make([]any, len(g.workers)) // by worker: the panic of a strict graph, to be raised in this goroutine
	g.parallel = true
	for w, r := range g.workers {
		wg.Go(func() {
			defer func() { broken[w] = recover() }()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(r, i)
			}
		})
	}
	wg.Wait()
	g.parallel = false
	for _, p := range broken {
		if p != nil {
			panic(p)
		}
	}
}
