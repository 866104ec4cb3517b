package query

import "github.com/pilotmesh/pilot/internal/store"

// root is somebody outside the graph who wants a cell.
type root struct{ publish func() }

// Observe makes the result for k a root: it is computed by the following Slices, and fn is called by Commit or Slice
// with each new result once nothing it needs is waiting. fn runs on the owner's goroutine and must not use the graph.
// The returned function ends it; a key can have one observer at a time.
func (q *Query[K, V]) Observe(k K, fn func(v V, ok bool)) (release func()) {
	c, slot := q.ensure(k)
	return q.g.observe(store.CellID(q.space, slot), &c.node, func() { fn(c.val, c.flags&present != 0) })
}

func (g *Graph) observe(id store.ID, n *node, publish func()) (release func()) {
	if n.flags&observed != 0 {
		panic("query: a second observer of one cell")
	}
	n.flags |= observed
	g.roots[id] = &root{publish}
	if n.flags&ready != 0 {
		g.publish = append(g.publish, id)
	} else {
		g.enqueue(id, lane1)
	}
	return func() {
		if n.flags&observed == 0 {
			return
		}
		n.flags &^= observed
		delete(g.roots, id)
		g.orphan(id, n)
	}
}

// publishRoots calls the observers of what changed. Lane 0 is empty, so whatever is ready is complete.
func (g *Graph) publishRoots() {
	for _, id := range g.publish {
		if r := g.roots[id]; r != nil {
			r.publish()
		}
	}
	g.publish = nil
}
