package query

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// CheckEdges checks, for tests, the invariants of the graph between commits when no cell is waiting. Edges are symmetric: u is
// in users(d) if and only if d is in reads(u), where the linked elements of a collection count as reads, and each edge exists
// once. A leaf with users is in use. No cell is queued or being computed. Every cell without users is a root or is listed for
// the sweep.
func (g *Graph) CheckEdges() error {
	type edge struct{ from, user store.ID }
	forward := map[edge]int{}
	for s, sp := range g.spaces {
		for _, slot := range liveSlots(sp) {
			id, n := store.CellID(s, slot), g.bases[s].node(slot)
			if n.queued != laneNone || n.flags&computing != 0 {
				return fmt.Errorf("%s is queued or computing at rest", describe(g, id))
			}
			if n.users.none() && n.flags&(observed|orphaned) == 0 {
				return fmt.Errorf("%s has no user and is not to be swept", describe(g, id))
			}
			for _, d := range n.reads {
				forward[edge{d, id}]++
			}
			if c, ok := sp.(interface{ elementIDs(uint32) []store.ID }); ok {
				for _, d := range c.elementIDs(slot) {
					forward[edge{d, id}]++
				}
			}
		}
	}
	backward := map[edge]int{}
	add := func(from store.ID, users *userSet) {
		for u := range users.all() {
			backward[edge{from, u}]++
		}
	}
	for s, leaf := range g.leaves {
		for n := range leaf.users {
			add(store.LeafID(s, uint32(n)), &leaf.users[n])
		}
	}
	for s, sp := range g.spaces {
		for _, slot := range liveSlots(sp) {
			add(store.CellID(s, slot), &g.bases[s].node(slot).users)
		}
	}
	for e := range backward {
		if e.from.Leaf() && !g.db.InUse(e.from) {
			return fmt.Errorf("edge %x -> %s: the leaf's slot is free", uint64(e.from), describe(g, e.user))
		}
	}
	for e, n := range forward {
		if n != 1 || backward[e] != 1 {
			return fmt.Errorf("edge %s -> %s: read %d times, used %d times", describe(g, e.from), describe(g, e.user), n, backward[e])
		}
	}
	for e := range backward {
		if forward[e] != 1 {
			return fmt.Errorf("edge %s -> %s is not read", describe(g, e.from), describe(g, e.user))
		}
	}
	return nil
}

func describe(g *Graph, id store.ID) string {
	query, key := g.name(id)
	return fmt.Sprintf("%s(%s)", query, key)
}

func liveSlots(sp space) []uint32 {
	if q, ok := sp.(*runner); ok {
		return sortedSlots(q.values)
	}
	return sortedSlots(sp)
}

func sortedSlots(of any) []uint32 {
	list := of.(interface{ slotsInUse() []uint32 }).slotsInUse()
	slices.Sort(list)
	return list
}

func (s *cells[K, T]) slotsInUse() []uint32 {
	list := make([]uint32, 0, s.slots.Count())
	for _, n := range s.slots.Each() {
		list = append(list, n)
	}
	return list
}

func (c *assembly[V]) elementIDs(slot uint32) []store.ID {
	var ids []store.ID
	for _, n := range c.elements.linked(slot) {
		ids = append(ids, c.elementCells.id(n))
	}
	return ids
}
