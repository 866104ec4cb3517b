package query

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// enqueue makes a cell run in a lane. A cell that waits in laneBuild can be moved to laneUpdate, but not back.
func (g *Graph) enqueue(id store.ID, in lane) {
	n := g.nodeOf(id)
	if n.queued == in || n.queued == laneUpdate {
		return
	}
	n.queued = in // step skips the entry that a cell moved to laneUpdate leaves in the queue of laneBuild
	s := id.Space()
	g.queues[in][s] = append(g.queues[in][s], id.Slot())
}

// enqueueUser makes a cell run because something that it read has changed. A cell that has never been computed stays in
// laneBuild.
func (g *Graph) enqueueUser(id store.ID) {
	if g.nodeOf(id).flags&ready != 0 {
		g.enqueue(id, laneUpdate)
	} else {
		g.enqueue(id, laneBuild)
	}
}

// lowest returns the lowest space with work in the lane, or -1 if the lane is empty.
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

// step runs up to max cells of the lowest rank that has work. It returns how many queue entries it took, or 0 if there was none.
func (g *Graph) step(in lane, max int) int {
	s := g.lowest(in)
	if s < 0 {
		return 0
	}
	q := g.queues[in][s]
	taken := min(max, len(q))
	batch := make([]uint32, 0, taken)
	for _, slot := range q[:taken] {
		if n := g.bases[s].node(slot); n.queued == in {
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
		g.spaces[s].run(batch, in)
		g.releaseLeaves()
	}
	return taken
}

// runEach runs cells that may each be expensive. When the budget of the slice is used up, the rest waits for the next slice.
func (g *Graph) runEach(space int, slots []uint32, in lane, run func(slot uint32, in lane)) {
	for _, slot := range slots {
		if in == laneBuild && g.budget <= 0 {
			g.enqueue(store.CellID(space, slot), in)
			continue
		}
		run(slot, in)
	}
}

// maxElements returns how many elements a cell may add in one run. A first build adds a portion, so that it does not delay commits.
func (g *Graph) maxElements(n *node, in lane) int {
	if in == laneBuild && n.flags&ready == 0 {
		return g.options.Portion
	}
	return store.MaxSlots
}

// absorb processes the data that a reader collected during a run: it links the cells that were computed on the way,
// enqueues the collections that are needed, and releases rows and groups that only aborted runs have read.
func (g *Graph) absorb(r *Reader, in lane) {
	for _, f := range r.computed {
		n := g.nodeOf(f.id)
		n.queued = laneNone // it may have waited in laneBuild
		g.ran[f.id.Space()]++
		g.relink(f.id, n, f.reads)
		g.recordFault(f.id, n, f.defect)
		g.orphan(f.id, n) // the cell that needed it links it later, which makes the sweep skip it
	}
	for _, id := range r.needs {
		n := g.nodeOf(id)
		g.enqueue(id, in)
		g.orphan(id, n)
	}
	for _, id := range r.abandoned {
		if id.Leaf() {
			g.unread = append(g.unread, id)
		} else {
			g.orphan(id, g.nodeOf(id))
		}
	}
	r.computed, r.needs, r.abandoned = r.computed[:0], r.needs[:0], r.abandoned[:0]
	r.reads, r.base = r.reads[:0], 0
}

// relink replaces the reads of a cell and updates the edges.
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

// orphan lists a cell that may have no users. The sweep checks whether it has none.
func (g *Graph) orphan(id store.ID, n *node) {
	if n.flags&orphaned == 0 && n.users.none() {
		n.flags |= orphaned
		if n := len(g.orphans); n == cap(g.orphans) {
			g.orphans = slices.Grow(g.orphans, n+8) // append would grow a long list in smaller steps and copy it more often
		}
		g.orphans = append(g.orphans, id)
	}
}

// sweep frees up to max cells without users, and then the cells that only those read. It must run only when no cell waits for
// another one, because a cell that is being built for another cell has no user yet.
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
			g.clearFault(id)
		}
		g.spaces[id.Space()].drop(id.Slot())
		freed++
	}
	g.releaseLeaves()
	if len(g.orphans) == 0 {
		g.orphans = nil
	}
}
