package query

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Groups is an index over the outputs of a collection.
type Groups[C comparable, G omap.Key[G], M omap.Key[M]] interface {
	// Group returns the members of group k of collection c.
	Group(r *Reader, c C, k G) omap.Map[M, omap.Unit]
	// Keys returns the groups of collection c that have members.
	Keys(r *Reader, c C) omap.Map[G, omap.Unit]
}

// groups is a Groups with its cells.
type groups[C comparable, G omap.Key[G], M omap.Key[M]] struct {
	base
	cells[C, grouping[G, M]]
	group  *memo[groupKey[C, G], omap.Map[M, omap.Unit]]
	keys   *memo[C, omap.Map[G, omap.Unit]]
	source source[C, G, M]
}

// source is the input of a grouping. It hides the type of the outputs, which only GroupBy knows.
type source[C comparable, G omap.Key[G], M omap.Key[M]] interface {
	// advance updates the counts of the grouping towards the present content of the collection. A first build counts at
	// most max outputs. It returns how multiplicities changed; more is true if outputs remain to be counted.
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

// GroupBy adds an index over the outputs of c. entries must be pure. It calls add for each pair of group and member that the
// output contributes; several outputs may contribute the same pair.
func GroupBy[C comparable, V Output, G omap.Key[G], M omap.Key[M]](g *Graph, name string, c Collection[C, V],
	entries func(v V, add func(G, M))) Groups[C, G, M] {
	return group(g, name, &grouped[C, V, G, M]{c: c, entries: entries})
}

// GroupSets is GroupBy for outputs that are large sets: each member of set(v) is a group, in which the output has the member of(v). A change of an
// output costs what differs between its sets. of may depend on the name of the output only.
func GroupSets[C comparable, V Output, G omap.Key[G], M omap.Key[M]](g *Graph, name string, c Collection[C, V],
	set func(v V) omap.Map[G, omap.Unit], of func(v V) M) Groups[C, G, M] {
	entries := func(v V, add func(G, M)) {
		for in := range set(v).All() {
			add(in, of(v))
		}
	}
	return group(g, name, &grouped[C, V, G, M]{c: c, entries: entries, set: set, of: of})
}

func group[C comparable, V Output, G omap.Key[G], M omap.Key[M]](g *Graph, name string, s *grouped[C, V, G, M]) Groups[C, G, M] {
	s.held, s.building = make(map[uint32]omap.Map[omap.Name, V]), make(map[uint32]*firstBuild[V])
	x := &groups[C, G, M]{base: base{g: g, name: name}, source: s}
	x.b = &x.base
	g.add(x)
	x.group = define(g, name+".group", omap.Map[M, omap.Unit].Equal, x.readGroup)
	x.keys = define(g, name+".keys", omap.Map[G, omap.Unit].Equal, x.readKeys)
	return x
}

// grouped is the source of the groupings of one GroupBy.
type grouped[C comparable, V Output, G omap.Key[G], M omap.Key[M]] struct {
	c        Collection[C, V]
	entries  func(v V, add func(G, M))
	set      func(v V) omap.Map[G, omap.Unit] // the groups of an output, and its member in them; nil unless outputs are sets
	of       func(v V) M
	held     map[uint32]omap.Map[omap.Name, V] // what each grouping has counted, by slot
	building map[uint32]*firstBuild[V]         // first builds that are not complete, by slot
}

// firstBuild is an unfinished first build: the collection as it was when the build started, and the part still to count.
type firstBuild[V Output] struct {
	snapshot  omap.Map[omap.Name, V]
	remaining []V
}

func (s *grouped[C, V, G, M]) advance(r *Reader, slot uint32, k C, max int) (counts *omap.Tally[G, M], more bool) {
	now := s.c.Get(r, k)
	held, built := s.held[slot]
	build := s.building[slot]
	if !built && build == nil && now.Len() > max {
		build = &firstBuild[V]{snapshot: now, remaining: make([]V, 0, now.Len())}
		for _, v := range now.All() {
			build.remaining = append(build.remaining, v)
		}
		s.building[slot] = build
	}
	counts = &omap.Tally[G, M]{}
	if build != nil {
		n := min(max, len(build.remaining))
		for _, v := range build.remaining[:n] {
			s.count(counts, v, +1)
		}
		if build.remaining = build.remaining[n:]; len(build.remaining) > 0 {
			return counts, true
		}
		held = build.snapshot
		delete(s.building, slot)
	}
	for ch := range omap.Diff(held, now) {
		if s.set != nil && ch.HadOld && ch.HasNew {
			s.compare(counts, ch.Old, ch.New)
			continue
		}
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

// compare counts what differs between two sets.
func (s *grouped[C, V, G, M]) compare(counts *omap.Tally[G, M], was, is V) {
	for ch := range omap.Diff(s.set(was), s.set(is)) {
		if ch.HasNew {
			counts.Add(ch.Key, s.of(is), +1)
		} else {
			counts.Add(ch.Key, s.of(was), -1)
		}
	}
}

func (s *grouped[C, V, G, M]) forget(slot uint32) {
	delete(s.held, slot)
	delete(s.building, slot)
}

func (s *grouped[C, V, G, M]) naively(r *Reader, k C, add func(G, M)) {
	for _, v := range s.c.Get(r, k).All() {
		s.entries(v, add)
	}
}

func (x *groups[C, G, M]) Group(r *Reader, c C, k G) omap.Map[M, omap.Unit] {
	m, _ := x.group.Get(r, groupKey[C, G]{c, k})
	return m
}

func (x *groups[C, G, M]) Keys(r *Reader, c C) omap.Map[G, omap.Unit] {
	m, _ := x.keys.Get(r, c)
	return m
}

func (x *groups[C, G, M]) readGroup(r *Reader, k groupKey[C, G]) (omap.Map[M, omap.Unit], bool) { //nolint:unparam // a query's function
	if r.naive || r.glance && !x.built(k.Collection) {
		var found []omap.Change[M, omap.Unit]
		x.source.naively(r, k.Collection, func(in G, m M) {
			if in == k.Group {
				found = append(found, omap.Put(m, omap.Unit{}))
			}
		})
		return omap.With(omap.Map[M, omap.Unit]{}, found...), true
	}
	if bag := x.read(r, k.Collection).groups[k.Group]; bag != nil {
		return bag.Members(), true
	}
	return omap.Map[M, omap.Unit]{}, true
}

func (x *groups[C, G, M]) readKeys(r *Reader, c C) (omap.Map[G, omap.Unit], bool) { //nolint:unparam // a query's function
	if r.naive || r.glance && !x.built(c) {
		var found []omap.Change[G, omap.Unit]
		x.source.naively(r, c, func(in G, _ M) { found = append(found, omap.Put(in, omap.Unit{})) })
		return omap.With(omap.Map[G, omap.Unit]{}, found...), true
	}
	return x.read(r, c).keys, true
}

// read reads a grouping. Unlike other readers, its readers run only if their own group changes; see enqueueReaders.
func (x *groups[C, G, M]) read(r *Reader, c C) *grouping[G, M] {
	return x.readBuilt(r, c)
}

func (x *groups[C, G, M]) run(slots []uint32, in lane) {
	x.g.runEach(x.space, slots, in, x.runOne)
}

func (x *groups[C, G, M]) runOne(slot uint32, in lane) {
	g, id, cell, r := x.g, x.id(slot), x.at(slot), x.g.main
	first, max := cell.flags&ready == 0, g.maxElements(cell.node, in)
	var counts *omap.Tally[G, M]
	more := false
	base, rank := r.enter(x.space)
	outcome, reason := r.protect(func() { counts, more = x.source.advance(r, slot, x.cells.key(slot), max) })
	reads := append([]store.ID(nil), r.leave(base, rank)...)
	if outcome == aborted {
		r.abandoned = append(r.abandoned, reads...)
		g.absorb(r, in)
		g.enqueue(id, in)
		return
	}
	g.relink(id, cell.node, reads)
	g.absorb(r, in)
	switch {
	case outcome == panicked:
		g.ran[x.space]++
		if first { // no part of a first build is a last good value
			x.source.forget(slot)
			*cell.val = grouping[G, M]{}
		}
		g.recordFault(id, cell.node, defect{Panicked, reason, !first})
		cell.flags |= ready | failed
	case more:
		cell.val.apply(counts)
		g.budget -= max / elementsPerCell
		g.enqueue(id, in)
	default:
		g.ran[x.space]++
		g.recordFault(id, cell.node, defect{})
		cell.flags = cell.flags&^failed | ready | present
		x.enqueueReaders(cell, x.cells.key(slot), counts)
	}
}

// enqueueReaders applies the changes to the groups and enqueues the readers of the groups that changed.
func (x *groups[C, G, M]) enqueueReaders(cell cell[grouping[G, M]], k C, counts *omap.Tally[G, M]) {
	changed, keys := cell.val.apply(counts)
	for _, in := range changed {
		if _, n, ok := x.group.find(groupKey[C, G]{k, in}); ok {
			x.g.enqueueUser(x.group.b.id(n))
		}
	}
	if !keys {
		return
	}
	cell.changed = x.g.rev
	if _, n, ok := x.keys.find(k); ok {
		x.g.enqueueUser(x.keys.b.id(n))
	}
}

// apply applies the changes to the groups. It returns the groups that changed, and whether a group was added or removed.
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
	v.keys = omap.With(v.keys, keys...)
	return changed, len(keys) > 0
}

func (x *groups[C, G, M]) drop(slot uint32) {
	x.source.forget(slot)
	x.remove(slot)
}

func (x *groups[C, G, M]) key(slot uint32) string { return x.text(slot) }
