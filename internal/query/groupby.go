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
	slab[C, grouping[G, M]]
	group *Query[groupKey[C, G], omap.Map[M, omap.Unit]]
	keys  *Query[C, omap.Map[G, omap.Unit]]
	// delta brings the grouping's source up to date and returns how multiplicities changed; GroupBy knows the outputs' type.
	delta   func(r *Reader, slot uint32, c C) map[G]map[M]int
	forget  func(slot uint32)
	naively func(r *Reader, c C, add func(G, M))
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
	x.slab.g = g
	x.space = g.add(x)
	sources := make(map[uint32]omap.Map[omap.Name, V]) // what the groupings hold, by slot
	x.delta = func(r *Reader, slot uint32, k C) map[G]map[M]int {
		now := c.Get(r, k)
		counts := make(map[G]map[M]int)
		count := func(by int) func(G, M) {
			return func(in G, m M) {
				if counts[in] == nil {
					counts[in] = make(map[M]int)
				}
				counts[in][m] += by
			}
		}
		for ch := range omap.Diff(sources[slot], now) {
			if ch.HadOld {
				entries(ch.Old, count(-1))
			}
			if ch.HasNew {
				entries(ch.New, count(+1))
			}
		}
		sources[slot] = now
		return counts
	}
	x.forget = func(slot uint32) { delete(sources, slot) }
	x.naively = func(r *Reader, k C, add func(G, M)) {
		for _, v := range c.Get(r, k).All() {
			entries(v, add)
		}
	}
	x.group = Define(g, name+".group", omap.Map[M, omap.Unit].Equal, x.readGroup)
	x.keys = Define(g, name+".keys", omap.Map[G, omap.Unit].Equal, x.readKeys)
	return x
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

func (x *Groups[C, G, M]) readGroup(r *Reader, k groupKey[C, G]) (omap.Map[M, omap.Unit], bool) {
	if r.naive || r.glance && !x.built(k.Collection) {
		var found []omap.Change[M, omap.Unit]
		x.naively(r, k.Collection, func(in G, m M) {
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

func (x *Groups[C, G, M]) readKeys(r *Reader, c C) (omap.Map[G, omap.Unit], bool) {
	if r.naive || r.glance && !x.built(c) {
		var found []omap.Change[G, omap.Unit]
		x.naively(r, c, func(in G, _ M) { found = append(found, omap.Put(in, omap.Unit{})) })
		return omap.Map[G, omap.Unit]{}.With(found...), true
	}
	return x.read(r, c).keys, true
}

// read reads a grouping. Its readers are told of their own group's changes only; see runOne.
func (x *Groups[C, G, M]) read(r *Reader, c C) *grouping[G, M] {
	r.below(x.space)
	x.lock()
	cell, slot := x.ensure(c)
	settled := cell.flags&ready != 0
	x.unlock()
	id := store.MakeID(x.space, slot)
	if !settled {
		r.wait(id)
	}
	r.Read(id)
	return &cell.val
}

// built reports whether the grouping of a collection stands.
func (x *Groups[C, G, M]) built(c C) bool {
	cell, _, ok := x.find(c)
	return ok && cell.flags&ready != 0
}

func (x *Groups[C, G, M]) run(slots []uint32, in lane) {
	for _, slot := range slots {
		x.runOne(slot, in)
	}
}

func (x *Groups[C, G, M]) runOne(slot uint32, in lane) {
	g, id, cell, r := x.g, store.MakeID(x.space, slot), x.at(slot), x.g.main
	var counts map[G]map[M]int
	base, rank := r.enter(x.space)
	outcome, reason := r.protect(func() { counts = x.delta(r, slot, cell.key) })
	reads := append([]store.ID(nil), r.leave(base, rank)...)
	if outcome == gaveUp {
		r.lost = append(r.lost, reads...)
		g.absorb(r, in)
		g.enqueue(id, in)
		return
	}
	g.relink(id, &cell.node, reads)
	g.absorb(r, in)
	g.ran[x.space]++
	if outcome == panicked {
		g.fail(id, reason, cell.flags&ready != 0)
		cell.flags |= ready | failed
		return
	}
	delete(g.failures, id)
	cell.flags = cell.flags&^failed | ready | present
	x.apply(cell, counts)
}

// apply changes the groups and makes the readers of exactly those run.
func (x *Groups[C, G, M]) apply(cell *entry[C, grouping[G, M]], counts map[G]map[M]int) {
	v := &cell.val
	if v.groups == nil {
		v.groups = make(map[G]*omap.Bag[M])
	}
	var keys []omap.Change[G, omap.Unit]
	for in, members := range counts {
		bag := v.groups[in]
		if bag == nil {
			bag = new(omap.Bag[M])
			v.groups[in] = bag
		}
		was := bag.Members().Len()
		changed := bag.Apply(members)
		if is := bag.Members().Len(); is == 0 {
			delete(v.groups, in)
			keys = append(keys, omap.Del[G, omap.Unit](in))
		} else if was == 0 {
			keys = append(keys, omap.Put(in, omap.Unit{}))
		}
		if changed {
			if _, n, ok := x.group.find(groupKey[C, G]{cell.key, in}); ok {
				x.g.enqueueUser(store.MakeID(x.group.space, n))
			}
		}
	}
	if len(keys) == 0 {
		return
	}
	cell.changed = x.g.rev
	v.keys = v.keys.With(keys...)
	if _, n, ok := x.keys.find(cell.key); ok {
		x.g.enqueueUser(store.MakeID(x.keys.space, n))
	}
}

func (x *Groups[C, G, M]) drop(slot uint32) {
	x.forget(slot)
	x.slab.drop(slot)
}

func (x *Groups[C, G, M]) label() string       { return x.name }
func (x *Groups[C, G, M]) key(slot uint32) any { return x.at(slot).key }
