package query

import "github.com/pilotmesh/pilot/internal/engine/store"

// root is the observer of a cell.
type root struct{ publish func() }

func (q *memo[K, V]) Observe(k K, fn func(v V, ok bool)) (release func()) {
	c, slot := q.ensure(k)
	return q.b.g.observe(q.b.id(slot), c.node, func() { fn(*c.val, c.flags&present != 0) })
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
		g.enqueue(id, laneBuild)
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

// publishRoots calls the observers of the roots that changed. laneUpdate must be empty; then every computed root is complete.
func (g *Graph) publishRoots() {
	for _, id := range g.publish {
		if r := g.roots[id]; r != nil {
			r.publish()
		}
	}
	g.publish = nil
}
