package query

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// runner runs the cells of one query. It is the part of a query that does not depend on the types of keys and results, so that
// the compiler translates it once; see doc.go.
type runner struct {
	base
	guards bool // the query guards access; see Guard
	values values
	waits  map[uint32]chan struct{}              // by slot: closed when the first computation of the cell ends; used while cells run in parallel
	sinks  map[int]func(collection, elem uint32) // by space: called before a cell changes that is an element of a collection in that space
}

// values is the view that a runner has of the keys and values of a query's cells. It hides their types. A batch is a list of
// cells that run together; each has a number in it.
type values interface {
	keyText(slot uint32) string
	free(slot uint32)
	begin(n int)                                 // starts a batch of n cells; 0 ends the last batch
	evaluate(r *Reader, slot uint32, i int) bool // runs the query's function for cell i of the batch; false if it has no result
	refuse(slot uint32, i int)                   // makes deny the result of cell i of the batch or, if i is negative, the cell's value
	same(slot uint32, i int) bool                // reports whether the result of cell i of the batch is the cell's value
	set(slot uint32, i int)                      // makes the result of cell i of the batch the cell's value; zero if it has none
}

// register adds the query to a graph.
func (q *runner) register(g *Graph, name string) {
	q.g, q.name = g, name
	q.waits, q.sinks = make(map[uint32]chan struct{}), make(map[int]func(uint32, uint32))
	g.add(q)
}

// naively runs a query's function, fn, without a cell.
func (q *runner) naively(r *Reader, fn func()) outcome {
	rank := r.rank
	r.rank = q.space
	out, _ := r.protect(fn)
	r.rank = rank
	return out
}

// demand computes a cell for the first time, unless another worker has done so or does so now; then it waits for the end. The
// caller holds the write lock, which demand releases. compute runs the query's function and stores the result in the cell.
func (q *runner) demand(r *Reader, slot uint32, n *node, compute func() (ok bool)) {
	for n.flags&computing != 0 {
		ready := q.waits[slot]
		q.unlock()
		<-ready
		q.lock()
	}
	if n.flags&ready != 0 {
		q.unlock()
		return
	}
	n.flags |= computing
	if q.g.parallel {
		q.waits[slot] = make(chan struct{})
	}
	q.unlock()

	id := q.id(slot)
	base, rank := r.enter(q.space)
	ok := false
	out, reason := r.protect(func() { ok = compute() })
	reads := r.leave(base, rank)
	var found defect

	q.lock()
	n.flags &^= computing
	switch {
	case out == aborted:
		r.abandoned = append(append(r.abandoned, reads...), id)
	case out == panicked:
		n.flags |= ready | failed
		found = defect{kind: Panicked, reason: reason}
		if q.guards {
			q.values.refuse(slot, -1)
			n.flags |= present
		}
	case ok:
		n.flags |= ready | present
	default:
		n.flags |= ready
	}
	n.changed = q.g.rev
	if wait := q.waits[slot]; wait != nil {
		close(wait)
		delete(q.waits, slot)
	}
	q.unlock()
	if out == aborted {
		panic(errNotBuilt)
	}
	r.computed = append(r.computed, computedCell{id, slices.Clone(reads), found})
}

// result is the outcome of one run of a cell of a batch, without the value.
type result struct {
	ok     bool // there is a value
	out    outcome
	reads  []store.ID // nil: the same reads as in the previous run
	reason string
}

func (q *runner) run(slots []uint32, in lane) {
	results := make([]result, len(slots))
	q.values.begin(len(slots))
	q.g.runParallel(len(slots), func(r *Reader, i int) { results[i] = q.runOne(r, slots[i], i) })
	for _, r := range q.g.workers {
		q.g.absorb(r, in)
	}
	for i, slot := range slots {
		q.settle(slot, i, &results[i], in)
	}
	q.values.begin(0)
}

// runOne runs cell i of a batch.
func (q *runner) runOne(r *Reader, slot uint32, i int) (res result) {
	n := q.node(slot)
	base, rank := r.enter(q.space)
	res.out, res.reason = r.protect(func() { res.ok = q.values.evaluate(r, slot, i) })
	reads := r.leave(base, rank)
	if !slices.Equal(reads, n.reads) {
		res.reads = append(make([]store.ID, 0, len(reads)), reads...)
	}
	if res.out == aborted {
		r.abandoned = append(r.abandoned, reads...)
	}
	return res
}

// settle stores the result of cell i of a batch. If it differs from the old one, the cells that read it are enqueued.
func (q *runner) settle(slot uint32, i int, res *result, in lane) {
	g, n, id := q.g, q.node(slot), q.id(slot)
	if res.out == aborted {
		g.enqueue(id, in)
		return
	}
	g.ran[q.space]++
	if res.reads != nil {
		g.relink(id, n, res.reads)
	}
	first := n.flags&ready == 0
	n.flags = n.flags&^failed | ready
	switch {
	case res.out != panicked:
		g.recordFault(id, n, defect{})
	case q.guards:
		n.flags |= failed
		g.recordFault(id, n, defect{kind: Panicked, reason: res.reason})
		q.values.refuse(slot, i)
		res.ok = true
	default:
		n.flags |= failed
		g.recordFault(id, n, defect{Panicked, res.reason, n.flags&present != 0})
		if first {
			q.noteSinks(n, slot)
			q.changed(n, id)
		}
		return
	}
	was := n.flags&present != 0
	if !first && was == res.ok && (!was || q.values.same(slot, i)) {
		return
	}
	q.noteSinks(n, slot)
	q.values.set(slot, i)
	if n.flags &^= present; res.ok {
		n.flags |= present
	}
	q.changed(n, id)
}

// noteSinks reports to collections that the value of one of their elements is about to change.
func (q *runner) noteSinks(n *node, slot uint32) {
	if len(q.sinks) == 0 {
		return
	}
	for u := range n.users.all() {
		if note := q.sinks[u.Space()]; note != nil {
			note(u.Slot(), slot)
		}
	}
}

// changed enqueues every cell that read the changed cell id, and publishes it if it is a root.
func (q *runner) changed(n *node, id store.ID) {
	n.changed = q.g.rev
	for u := range n.users.all() {
		q.g.enqueueUser(u)
	}
	if n.flags&observed != 0 {
		q.g.publish = append(q.g.publish, id)
	}
}

func (q *runner) key(slot uint32) string { return q.values.keyText(slot) }
func (q *runner) drop(slot uint32)       { q.values.free(slot) }

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
