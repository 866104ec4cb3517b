package query

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/store"
)

// enqueue gives a cell work. A cell in lane 1 can be promoted to lane 0, never the other way.
func (g *Graph) enqueue(id store.ID, in lane) {
	n := g.nodeOf(id)
	if n.queued == in || n.queued == lane0 {
		return
	}
	n.queued = in // what a promoted cell leaves in the other queue is skipped there
	s := id.Space()
	g.queues[in][s] = append(g.queues[in][s], id.Slot())
}

// enqueueUser makes a cell run because something it read changed. A cell that has never been complete
// stays in the lane it is being built in.
func (g *Graph) enqueueUser(id store.ID) {
	if g.nodeOf(id).flags&ready != 0 {
		g.enqueue(id, lane0)
	} else {
		g.enqueue(id, lane1)
	}
}

// lowest is the lowest space with work in the lane, or -1.
func (g *Graph) lowest(in lane) int {
	for s, q := range g.queues[in] {
		if len(q) > 0 {
			return s
		}
	}
	return -1
}

// drain runs all work of a lane.
func (g *Graph) drain(in lane) {
	for g.lowest(in) >= 0 {
		g.step(in, store.MaxSlots)
	}
}

// step runs up to max cells of the lowest rank with work and returns how many it took; 0 if there is none.
func (g *Graph) step(in lane, max int) int {
	s := g.lowest(in)
	if s < 0 {
		return 0
	}
	q := g.queues[in][s]
	taken := min(max, len(q))
	batch := make([]uint32, 0, taken)
	sp := g.spaces[s]
	for _, slot := range q[:taken] {
		if n := sp.node(slot); n.queued == in {
			n.queued = laneNone
			batch = append(batch, slot)
		}
	}
	if taken == len(q) {
		g.queues[in][s] = nil
	} else {
		g.queues[in][s] = q[taken:]
	}
	if len(batch) > 0 {
		sp.run(batch, in)
		g.releaseLeaves()
	}
	return taken
}

// inTurn runs the cells of a space that may each be large; those the slice has no budget left for wait for the next one.
func (g *Graph) inTurn(space int, slots []uint32, in lane, run func(slot uint32, in lane)) {
	for _, slot := range slots {
		if in == lane1 && g.budget <= 0 {
			g.enqueue(store.CellID(space, slot), in)
			continue
		}
		run(slot, in)
	}
}

// atOnce is how many elements a cell may take in at a time: a first build that nobody waits for does not hold up the input.
func (g *Graph) atOnce(n *node, in lane) int {
	if in == lane1 && n.flags&ready == 0 {
		return g.options.Portion
	}
	return store.MaxSlots
}

// absorb links what a reader computed on the way, and sees to what it needs.
func (g *Graph) absorb(r *Reader, in lane) {
	for _, f := range r.fresh {
		n := g.nodeOf(f.id)
		n.queued = laneNone // it may have waited in lane 1
		g.ran[f.id.Space()]++
		g.relink(f.id, n, f.reads)
		g.judge(f.id, n, f.verdict)
		g.orphan(f.id, n) // unless the cell it was computed for links it
	}
	for _, id := range r.needs {
		n := g.nodeOf(id)
		g.enqueue(id, in)
		g.orphan(id, n)
	}
	for _, id := range r.lost {
		if id.Leaf() {
			g.unread = append(g.unread, id)
		} else {
			g.orphan(id, g.nodeOf(id))
		}
	}
	r.fresh, r.needs, r.lost = r.fresh[:0], r.needs[:0], r.lost[:0]
	r.reads, r.base = r.reads[:0], 0
}

// relink makes reads the cell's edges.
func (g *Graph) relink(id store.ID, n *node, reads []store.ID) {
	old := n.reads
	n.reads = reads
	for _, d := range reads {
		if !slices.Contains(old, d) {
			g.link(d, id)
		}
	}
	for _, d := range old {
		if !slices.Contains(reads, d) {
			g.unlink(d, id)
		}
	}
}

// orphan notes that a cell may have no users; whether it has none is looked at when it is swept.
func (g *Graph) orphan(id store.ID, n *node) {
	if n.flags&orphaned == 0 && n.users.none() {
		n.flags |= orphaned
		if n := len(g.orphans); n == cap(g.orphans) {
			g.orphans = slices.Grow(g.orphans, n+8) // append would copy a long list more often
		}
		g.orphans = append(g.orphans, id)
	}
}

// sweep frees up to max cells that nobody reads, and then those only they read. It runs only when no cell is
// waiting for another: a cell that is being built for somebody has no user yet.
func (g *Graph) sweep(max int) {
	for freed := 0; freed < max && len(g.orphans) > 0; {
		id := g.orphans[len(g.orphans)-1]
		g.orphans = g.orphans[:len(g.orphans)-1]
		n := g.nodeOf(id)
		n.flags &^= orphaned
		if !n.users.none() || n.flags&observed != 0 {
			continue
		}
		for _, d := range n.reads {
			g.unlink(d, id)
		}
		if n.flags&faulty != 0 {
			g.absolve(id)
		}
		g.spaces[id.Space()].drop(id.Slot())
		freed++
	}
	g.releaseLeaves()
	if len(g.orphans) == 0 {
		g.orphans = nil
	}
}
