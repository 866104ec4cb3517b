package query

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pilotmesh/pilot/internal/store"
)

// Query is a memoised pure function of a key.
type Query[K comparable, V any] struct {
	g     *Graph
	name  string
	space int
	eq    func(a, b V) bool
	fn    func(r *Reader, k K) (V, bool)
	deny  *V // the result of a run that panics, if the query guards access
	cells[K, V]
	waits map[uint32]chan struct{}                     // first computations under way, while cells run in parallel
	sinks map[int]func(collection, elem uint32, old V) // collections whose elements these cells are, by space
}

// Define adds a query. It may read only tables, indexes and queries defined before it. eq decides whether a new result
// is the same as the old one, in which case nothing that read it runs again.
//
// fn is pure: no goroutine, clock, I/O or mutable state; its result is immutable and does not depend on Go's map order.
// ok=false means "there is no such thing".
func Define[K comparable, V any](g *Graph, name string, eq func(a, b V) bool, fn func(r *Reader, k K) (V, bool)) *Query[K, V] {
	q := &Query[K, V]{g: g, name: name, eq: eq, fn: fn}
	q.cells.g = g
	q.waits = make(map[uint32]chan struct{})
	q.sinks = make(map[int]func(uint32, uint32, V))
	q.space = g.add(q)
	return q
}

// Guard adds a query whose result guards access: what may be asked for, who may ask. A run that panics results in deny, which
// says so, and not in the last good value or in none, which may let somebody in who is to be kept out.
func Guard[K comparable, V any](g *Graph, name string, eq func(a, b V) bool, deny V, fn func(r *Reader, k K) (V, bool)) *Query[K, V] {
	q := Define(g, name, eq, fn)
	q.deny = &deny
	return q
}

// Get reads the result for k.
func (q *Query[K, V]) Get(r *Reader, k K) (V, bool) {
	r.below(q.space)
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

// evaluateNaively evaluates as a cell would: a panic makes the result absent, or denies.
func (q *Query[K, V]) evaluateNaively(r *Reader, k K) (v V, ok bool) {
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

// demand computes a cell for the first time, on behalf of the cell that is running.
func (q *Query[K, V]) demand(r *Reader, k K) (*entry[K, V], uint32) {
	q.lock()
	c, slot := q.ensure(k)
	for c.flags&computing != 0 {
		ready := q.waits[slot]
		q.unlock()
		<-ready
		q.lock()
	}
	if c.flags&ready != 0 { // another worker did it
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
	var wrong verdict

	q.lock()
	c.flags &^= computing
	switch {
	case out == gaveUp:
		r.lost = append(append(r.lost, reads...), id)
	case out == panicked:
		c.flags |= ready | failed
		wrong = verdict{kind: Panicked, reason: reason}
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
	if out == gaveUp {
		panic(errGiveUp)
	}
	r.fresh = append(r.fresh, linkage{id, slices.Clone(reads), wrong})
	return c, slot
}

// result is what one run of a cell yielded, until it is settled.
type result[V any] struct {
	val    V
	ok     bool
	out    outcome
	reads  []store.ID // nil: the same as last time
	reason string
}

func (q *Query[K, V]) run(slots []uint32, in lane) {
	results := make([]result[V], len(slots))
	q.g.each(len(slots), func(r *Reader, i int) { results[i] = q.evaluate(r, slots[i]) })
	for _, r := range q.g.workers {
		q.g.absorb(r, in)
	}
	for i, slot := range slots {
		q.settle(slot, &results[i], in)
	}
}

func (q *Query[K, V]) evaluate(r *Reader, slot uint32) (res result[V]) {
	c := q.at(slot)
	base, rank := r.enter(q.space)
	out, reason := r.protect(func() { res.val, res.ok = q.fn(r, c.key) })
	reads := r.leave(base, rank)
	res.out, res.reason = out, reason
	if !slices.Equal(reads, c.reads) {
		res.reads = append(make([]store.ID, 0, len(reads)), reads...)
	}
	if out == gaveUp {
		r.lost = append(r.lost, reads...)
	}
	return res
}

// settle installs a result and makes those who read the cell run, if it changed.
func (q *Query[K, V]) settle(slot uint32, res *result[V], in lane) {
	g, c, id := q.g, q.at(slot), store.CellID(q.space, slot)
	if res.out == gaveUp {
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
		g.judge(id, &c.node, verdict{})
	case q.deny != nil:
		c.flags |= failed
		g.judge(id, &c.node, verdict{kind: Panicked, reason: res.reason})
		res.val, res.ok = *q.deny, true
	default:
		c.flags |= failed
		g.judge(id, &c.node, verdict{Panicked, res.reason, c.flags&present != 0})
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

// changed tells everyone who read the cell.
func (q *Query[K, V]) changed(c *entry[K, V], id store.ID, old V) {
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

func (q *Query[K, V]) label() string       { return q.name }
func (q *Query[K, V]) key(slot uint32) any { return q.at(slot).key }

// each runs fn for 0..n-1, on all workers if that is worth it.
func (g *Graph) each(n int, fn func(r *Reader, i int)) {
	if n < g.options.ParallelFrom || len(g.workers) == 1 {
		for i := range n {
			fn(g.main, i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	broken := make([]any, len(g.workers)) // a strict graph's broken rules, to be raised here
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
