package store

import "github.com/pilotmesh/pilot/internal/omap"

// Index groups the rows of one table: every row contributes members to groups. Reading a group depends on its
// membership only, not on what the rows say.
type Index[G comparable, M omap.Key[M]] struct {
	name    string
	space   int
	groups  slots[G, omap.Bag[M]]
	pending omap.Tally[G, M] // changes of multiplicity in the open commit
	scan    func(g G) omap.Map[M, omap.Unit]
}

// feed carries one table's changes to an index.
type feed[K comparable, V any, G comparable, M omap.Key[M]] struct {
	x       *Index[G, M]
	entries func(k K, v V, add func(G, M))
	was, is []entry[G, M] // room to compare two versions of a row; empty between writes
}

type entry[G comparable, M omap.Key[M]] struct {
	group  G
	member M
}

// NewIndex adds an index over t, which must be empty. entries is pure and calls add for each (group, member) the row
// contributes; several rows may contribute the same pair.
func NewIndex[K comparable, V any, G comparable, M omap.Key[M]](t *Table[K, V], name string, entries func(k K, v V, add func(G, M))) *Index[G, M] {
	if t.present > 0 {
		panic("store: index " + name + " over a table that has rows already")
	}
	x := &Index[G, M]{name: name}
	x.scan = func(g G) omap.Map[M, omap.Unit] {
		var found []omap.Change[M, omap.Unit]
		for k, v := range t.All() {
			entries(k, v, func(in G, m M) {
				if in == g {
					found = append(found, omap.Put(m, omap.Unit{}))
				}
			})
		}
		return omap.Map[M, omap.Unit]{}.With(found...)
	}
	x.space = t.db.add(x)
	t.indexes = append(t.indexes, &feed[K, V, G, M]{x: x, entries: entries})
	return x
}

// Group reads the members of a group; an empty group is a recorded read too.
func (x *Index[G, M]) Group(r Reader, g G) omap.Map[M, omap.Unit] {
	if r.Naive() {
		return x.scan(g)
	}
	if r.Glancing() {
		return x.Peek(g)
	}
	gr, _, n := x.groups.at(g)
	r.Read(LeafID(x.space, n))
	return gr.Members()
}

// Peek returns a group without recording a read, for the writer and debug pages.
func (x *Index[G, M]) Peek(g G) omap.Map[M, omap.Unit] {
	gr, _ := x.groups.peek(g)
	return gr.Members()
}

// change counts what the row contributes no longer, and what it contributes now. Most changes of a row with many entries
// leave those at the beginning and at the end as they are: to compare these is far cheaper than to count them.
func (f *feed[K, V, G, M]) change(tx *Txn, k K, old, new *V) {
	switch {
	case old == nil && new != nil:
		f.entries(k, *new, func(g G, m M) { f.x.count(tx, g, m, +1) })
	case old != nil && new == nil:
		f.entries(k, *old, func(g G, m M) { f.x.count(tx, g, m, -1) })
	case old != nil:
		f.was, f.is = f.list(f.was[:0], k, *old), f.list(f.is[:0], k, *new)
		f.compare(tx, f.was, f.is)
		clear(f.was) // what they refer to may be freed; the room is used again
		clear(f.is)
	}
}

func (f *feed[K, V, G, M]) compare(tx *Txn, was, is []entry[G, M]) {
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	for _, e := range was {
		f.x.count(tx, e.group, e.member, -1)
	}
	for _, e := range is {
		f.x.count(tx, e.group, e.member, +1)
	}
}

// list appends what a row contributes to a list.
func (f *feed[K, V, G, M]) list(list []entry[G, M], k K, v V) []entry[G, M] {
	f.entries(k, v, func(g G, m M) { list = append(list, entry[G, M]{g, m}) })
	return list
}

func (f *feed[K, V, G, M]) space() space { return f.x }

func (x *Index[G, M]) count(tx *Txn, g G, m M, by int) {
	if x.pending.Empty() {
		tx.indexes = append(tx.indexes, x)
	}
	x.pending.Add(g, m, by)
}

// settle turns the commit's changes of multiplicity into changes of membership.
func (x *Index[G, M]) settle(tx *Txn) {
	for g, counts := range x.pending.All() {
		n := x.groups.ensure(g)
		it := x.groups.own(n)
		if it.item.Apply(counts) {
			it.present = it.item.Members().Len() > 0
			tx.touch(LeafID(x.space, n), &it.changed)
		}
	}
	x.pending = omap.Tally[G, M]{}
}

func (x *Index[G, M]) label() string              { return x.name }
func (x *Index[G, M]) number() int                { return x.space }
func (x *Index[G, M]) describe(n uint32) LeafInfo { return x.groups.info(x.name, n) }
func (x *Index[G, M]) release(n uint32)           { x.groups.release(n) }
func (x *Index[G, M]) used() int                  { return x.groups.kept.Len() }
