package query

import (
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Groups is an index over the outputs of a collection.
type Groups[C comparable, G omap.Key[G], M omap.Key[M]] struct {
	g     *Graph
	name  string
	space int
	cells[C, grouping[G, M]]
	group  *Query[groupKey[C, G], omap.Map[M, omap.Unit]]
	keys   *Query[C, omap.Map[G, omap.Unit]]
	source source[C, G, M]
}

// source is what a grouping is made of; GroupBy hides the outputs' type behind it.
type source[C comparable, G omap.Key[G], M omap.Key[M]] interface {
	// advance goes towards what the collection holds now, by up to max outputs if nothing stands yet, and returns how
	// multiplicities changed; more if it has not arrived.
	advance(r *Reader, slot uint32, c C, max int) (counts *omap.Tally[G, M], more bool)
	forget(slot uint32)
	naively(r *Reader, c C, add func(G, M))
}

type groupKey[C comparable, G comparable] struct {
	Collection C
	Group      G
}

type grouping[G omap.Key[G], M omap.Key[M]] struct {
	groups map[G]*omap.Bag[M]
	keys   omap.Map[G, omap.Unit]
}

// GroupBy adds an index over c's outputs: each output contributes members to groups; several may contribute the same pair.
// entries is pure.
func GroupBy[C comparable, V Output, G omap.Key[G], M omap.Key[M]](g *Graph, name string, c *Collection[C, V],
	entries func(v V, add func(G, M))) *Groups[C, G, M] {
	x := &Groups[C, G, M]{g: g, name: name}
	x.cells.g = g
	x.space = g.add(x)
	x.source = &grouped[C, V, G, M]{c: c, entries: entries, held: make(map[uint32]omap.Map[omap.Name, V]), coming: make(map[uint32]*coming[V])}
	x.group = Define(g, name+".group", omap.Map[M, omap.Unit].Equal, x.readGroup)
	x.keys = Define(g, name+".keys", omap.Map[G, omap.Unit].Equal, x.readKeys)
	return x
}

// grouped is the source of the groupings of one GroupBy.
type grouped[C comparable, V Output, G omap.Key[G], M omap.Key[M]] struct {
	c       *Collection[C, V]
	entries func(v V, add func(G, M))
	held    map[uint32]omap.Map[omap.Name, V] // what the groupings hold, by slot
	coming  map[uint32]*coming[V]             // first builds under way, by slot
}

// coming is what a first build takes in: the collection as it was when that began.
type coming[V Output] struct {
	of   omap.Map[omap.Name, V]
	left []V
}

func (s *grouped[C, V, G, M]) advance(r *Reader, slot uint32, k C, max int) (counts *omap.Tally[G, M], more bool) {
	now := s.c.Get(r, k)
	held, stands := s.held[slot]
	begun := s.coming[slot]
	if !stands && begun == nil && now.Len() > max {
		begun = &coming[V]{of: now, left: make([]V, 0, now.Len())}
		for _, v := range now.All() {
			begun.left = append(begun.left, v)
		}
		s.coming[slot] = begun
	}
	counts = &omap.Tally[G, M]{}
	if begun != nil {
		n := min(max, len(begun.left))
		for _, v := range begun.left[:n] {
			s.count(counts, v, +1)
		}
		if begun.left = begun.left[n:]; len(begun.left) > 0 {
			return counts, true
		}
		held = begun.of
		delete(s.coming, slot)
	}
	for ch := range omap.Diff(held, now) {
		if ch.HadOld {
			s.count(counts, ch.Old, -1)
		}
		if ch.HasNew {
			s.count(counts, ch.New, +1)
		}
	}
	s.held[slot] = now
	return counts, false
}

func (s *grouped[C, V, G, M]) count(counts *omap.Tally[G, M], v V, by int) {
	s.entries(v, func(in G, m M) { counts.Add(in, m, by) })
}

func (s *grouped[C, V, G, M]) forget(slot uint32) {
	delete(s.held, slot)
	delete(s.coming, slot)
}

func (s *grouped[C, V, G, M]) naively(r *Reader, k C, add func(G, M)) {
	for _, v := range s.c.Get(r, k).All() {
		s.entries(v, add)
	}
}

// Group reads the members of group k of collection c.
func (x *Groups[C, G, M]) Group(r *Reader, c C, k G) omap.Map[M, omap.Unit] {
	m, _ := x.group.Get(r, groupKey[C, G]{c, k})
	return m
}

// Keys reads the set of non-empty groups of collection c.
func (x *Groups[C, G, M]) Keys(r *Reader, c C) omap.Map[G, omap.Unit] {
	m, _ := x.keys.Get(r, c)
	return m
}

func (x *Groups[C, G, M]) readGroup(r *Reader, k groupKey[C, G]) (omap.Map[M, omap.Unit], bool) { //nolint:unparam // a query's function
	if r.naive || r.glance && !x.built(k.Collection) {
		var found []omap.Change[M, omap.Unit]
		x.source.naively(r, k.Collection, func(in G, m M) {
			if in == k.Group {
				found = append(found, omap.Put(m, omap.Unit{}))
			}
		})
		return omap.Map[M, omap.Unit]{}.With(found...), true
	}
	if bag := x.read(r, k.Collection).groups[k.Group]; bag != nil {
		return bag.Members(), true
	}
	return omap.Map[M, omap.Unit]{}, true
}

func (x *Groups[C, G, M]) readKeys(r *Reader, c C) (omap.Map[G, omap.Unit], bool) { //nolint:unparam // a query's function
	if r.naive || r.glance && !x.built(c) {
		var found []omap.Change[G, omap.Unit]
		x.source.naively(r, c, func(in G, _ M) { found = append(found, omap.Put(in, omap.Unit{})) })
		return omap.Map[G, omap.Unit]{}.With(found...), true
	}
	return x.read(r, c).keys, true
}

// read reads a grouping. Its readers are told of their own group's changes only; see runOne.
func (x *Groups[C, G, M]) read(r *Reader, c C) *grouping[G, M] {
	return &x.await(r, x.space, c).val
}

func (x *Groups[C, G, M]) run(slots []uint32, in lane) {
	x.g.inTurn(x.space, slots, in, x.runOne)
}

func (x *Groups[C, G, M]) runOne(slot uint32, in lane) {
	g, id, cell, r := x.g, store.CellID(x.space, slot), x.at(slot), x.g.main
	first, max := cell.flags&ready == 0, g.atOnce(&cell.node, in)
	var counts *omap.Tally[G, M]
	more := false
	base, rank := r.enter(x.space)
	outcome, reason := r.protect(func() { counts, more = x.source.advance(r, slot, cell.key, max) })
	reads := append([]store.ID(nil), r.leave(base, rank)...)
	if outcome == gaveUp {
		r.lost = append(r.lost, reads...)
		g.absorb(r, in)
		g.enqueue(id, in)
		return
	}
	g.relink(id, &cell.node, reads)
	g.absorb(r, in)
	switch {
	case outcome == panicked:
		g.ran[x.space]++
		if first { // no part of a first build is a last good value
			x.source.forget(slot)
			cell.val = grouping[G, M]{}
		}
		g.judge(id, &cell.node, verdict{Panicked, reason, !first})
		cell.flags |= ready | failed
	case more:
		cell.val.apply(counts)
		g.budget -= max / elementsPerCell
		g.enqueue(id, in)
	default:
		g.ran[x.space]++
		g.judge(id, &cell.node, verdict{})
		cell.flags = cell.flags&^failed | ready | present
		x.tell(cell, counts)
	}
}

// tell changes the groups and makes the readers of exactly those run.
func (x *Groups[C, G, M]) tell(cell *entry[C, grouping[G, M]], counts *omap.Tally[G, M]) {
	changed, keys := cell.val.apply(counts)
	for _, in := range changed {
		if _, n, ok := x.group.find(groupKey[C, G]{cell.key, in}); ok {
			x.g.enqueueUser(store.CellID(x.group.space, n))
		}
	}
	if !keys {
		return
	}
	cell.changed = x.g.rev
	if _, n, ok := x.keys.find(cell.key); ok {
		x.g.enqueueUser(store.CellID(x.keys.space, n))
	}
}

// apply changes the groups and reports which, and whether groups came or went.
func (v *grouping[G, M]) apply(counts *omap.Tally[G, M]) (changed []G, cameOrWent bool) {
	if v.groups == nil {
		v.groups = make(map[G]*omap.Bag[M])
	}
	var keys []omap.Change[G, omap.Unit]
	for in, list := range counts.All() {
		bag := v.groups[in]
		if bag == nil {
			bag = new(omap.Bag[M])
			v.groups[in] = bag
		}
		was := bag.Members().Len()
		if bag.Apply(list) {
			changed = append(changed, in)
		}
		if is := bag.Members().Len(); is == 0 {
			delete(v.groups, in)
			keys = append(keys, omap.Del[G, omap.Unit](in))
		} else if was == 0 {
			keys = append(keys, omap.Put(in, omap.Unit{}))
		}
	}
	v.keys = v.keys.With(keys...)
	return changed, len(keys) > 0
}

func (x *Groups[C, G, M]) drop(slot uint32) {
	x.source.forget(slot)
	x.cells.drop(slot)
}

func (x *Groups[C, G, M]) label() string       { return x.name }
func (x *Groups[C, G, M]) key(slot uint32) any { return x.at(slot).key }
