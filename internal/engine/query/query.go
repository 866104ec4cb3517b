package query

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

// memo is a query with its cells, which runner runs.
type memo[K comparable, V any] struct {
	runs runner // not embedded, so that its methods are not translated for each memo
	cells[K, V]
	eq      func(a, b V) bool
	fn      func(r *Reader, k K) (V, bool)
	deny    *V  // the result of a run that panics, if the query guards access; otherwise nil
	results []V // of the batch that is running
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
	q := &memo[K, V]{eq: eq, fn: fn}
	q.b = &q.runs.base
	q.runs.values = q
	q.runs.register(g, name)
	return q
}

// Guard adds a query whose result controls access, such as access to a secret. If a run panics, the result is deny: the
// last good value, or an absent result, could grant access that must be denied.
func Guard[K comparable, V any](g *Graph, name string, eq func(a, b V) bool, deny V, fn func(r *Reader, k K) (V, bool)) Query[K, V] {
	q := define(g, name, eq, fn)
	q.deny, q.runs.guards = &deny, true
	return q
}

func (q *memo[K, V]) Get(r *Reader, k K) (V, bool) {
	r.checkRank(q.b.space)
	if r.naive || r.glance {
		return q.answer(r, k)
	}
	q.b.rlock()
	c, slot, ok := q.find(k)
	settled := ok && c.flags&ready != 0
	q.b.runlock()
	if !settled {
		c, slot = q.first(r, k)
	}
	r.Read(q.b.id(slot))
	return *c.val, c.flags&present != 0
}

// answer returns the result for k without a new cell: from the existing cell, if the reader takes it, or by running fn. A panic
// makes the result absent, or deny, as for a cell.
func (q *memo[K, V]) answer(r *Reader, k K) (v V, ok bool) {
	if r.glance {
		if c, _, ok := q.find(k); ok && c.flags&ready != 0 {
			return *c.val, c.flags&present != 0
		}
	}
	out := q.runs.naively(r, func() { v, ok = q.fn(r, k) })
	if out == panicked && q.deny != nil {
		return *q.deny, true
	}
	if out != done || !ok {
		var none V
		return none, false
	}
	return v, ok
}

// first computes the cell of k for the first time, because the running cell reads it. It returns the computed cell.
func (q *memo[K, V]) first(r *Reader, k K) (cell[V], uint32) {
	q.b.lock()
	c, slot := q.ensure(k)
	q.runs.demand(r, slot, c.node, func() bool {
		v, ok := q.fn(r, k)
		if ok {
			*c.val = v // no other worker reads it before the cell is ready
		}
		return ok
	})
	return c, slot
}

func (q *memo[K, V]) keyText(slot uint32) string { return q.text(slot) }
func (q *memo[K, V]) free(slot uint32)           { q.remove(slot) }

func (q *memo[K, V]) begin(n int) {
	q.results = nil
	if n > 0 {
		q.results = make([]V, n)
	}
}

func (q *memo[K, V]) evaluate(r *Reader, slot uint32, i int) bool {
	v, ok := q.fn(r, q.key(slot))
	if ok {
		q.results[i] = v
	}
	return ok
}

func (q *memo[K, V]) same(slot uint32, i int) bool {
	return q.eq(*q.values.At(slot), q.results[i])
}
func (q *memo[K, V]) set(slot uint32, i int) { *q.values.At(slot) = q.results[i] }

func (q *memo[K, V]) refuse(slot uint32, i int) {
	if i < 0 {
		*q.values.At(slot) = *q.deny
		return
	}
	q.results[i] = *q.deny
}
