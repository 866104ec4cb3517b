package store

import "github.com/pilotmesh/pilot/internal/engine/omap"

// Index groups the rows of one table: every row contributes members to groups. A query that reads a group depends on the
// members of the group, not on the content of the rows.
type Index[G comparable, M omap.Key[M]] interface {
	// Group returns the members of a group. The read is recorded, also if the group is empty.
	Group(r Reader, g G) omap.Map[M, omap.Unit]
	// Peek returns a group without recording a read. It is for the writer and debug pages.
	Peek(g G) omap.Map[M, omap.Unit]
}

// index is an Index with its groups.
type index[G comparable, M omap.Key[M]] struct {
	name    string
	space   int
	groups  slots[G, omap.Bag[M]]
	pending omap.Tally[G, M] // changes of multiplicity in the open commit
	scan    func(g G) omap.Map[M, omap.Unit]
}

// feed passes the changes of one table to an index.
type feed[K comparable, V any, G comparable, M omap.Key[M]] struct {
	x                      *index[G, M]
	entries                func(k K, v V, add func(G, M))
	oldEntries, newEntries []entry[G, M] // buffers for the entries of the old and the new version of a row; empty between writes
}

type entry[G comparable, M omap.Key[M]] struct {
	group  G
	member M
}

// NewIndex adds an index over t, which must be empty. entries must be pure. It calls add for each pair of group and member
// that the row contributes; several rows may contribute the same pair.
func NewIndex[K comparable, V any, G comparable, M omap.Key[M]](t Table[K, V], name string, entries func(k K, v V, add func(G, M))) Index[G, M] {
	return newIndex(t.(*table[K, V]), name, entries)
}

func newIndex[K comparable, V any, G comparable, M omap.Key[M]](t *table[K, V], name string, entries func(k K, v V, add func(G, M))) *index[G, M] {
	if t.present > 0 {
		panic("store: index " + name + " added to a table that already has rows")
	}
	x := &index[G, M]{name: name}
	x.scan = func(g G) omap.Map[M, omap.Unit] {
		var found []omap.Change[M, omap.Unit]
		for k, v := range t.All() {
			entries(k, v, func(in G, m M) {
				if in == g {
					found = append(found, omap.Put(m, omap.Unit{}))
				}
			})
		}
		return omap.With(omap.Map[M, omap.Unit]{}, found...)
	}
	x.space = t.db.add(x)
	t.indexes = append(t.indexes, &feed[K, V, G, M]{x: x, entries: entries})
	return x
}

func (x *index[G, M]) Group(r Reader, g G) omap.Map[M, omap.Unit] {
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

func (x *index[G, M]) Peek(g G) omap.Map[M, omap.Unit] {
	gr, _ := x.groups.peek(g)
	return gr.Members()
}

// change counts the entries that a changed row no longer contributes and the entries that it newly contributes. Most changes of a
// row with many entries leave the first and the last entries as they are. Comparing these is far cheaper than counting them.
func (f *feed[K, V, G, M]) change(tx *Txn, k K, old, new *V) {
	switch {
	case old == nil && new != nil:
		f.entries(k, *new, func(g G, m M) { f.x.count(tx, g, m, +1) })
	case old != nil && new == nil:
		f.entries(k, *old, func(g G, m M) { f.x.count(tx, g, m, -1) })
	case old != nil:
		f.oldEntries, f.newEntries = f.list(f.oldEntries[:0], k, *old), f.list(f.newEntries[:0], k, *new)
		f.compare(tx, f.oldEntries, f.newEntries)
		clear(f.oldEntries) // so that the old entries can be garbage collected while the buffers are kept
		clear(f.newEntries)
	}
}

func (f *feed[K, V, G, M]) compare(tx *Txn, oldEntries, newEntries []entry[G, M]) {
	for len(oldEntries) > 0 && len(newEntries) > 0 && oldEntries[0] == newEntries[0] {
		oldEntries, newEntries = oldEntries[1:], newEntries[1:]
	}
	for len(oldEntries) > 0 && len(newEntries) > 0 && oldEntries[len(oldEntries)-1] == newEntries[len(newEntries)-1] {
		oldEntries, newEntries = oldEntries[:len(oldEntries)-1], newEntries[:len(newEntries)-1]
	}
	for _, e := range oldEntries {
		f.x.count(tx, e.group, e.member, -1)
	}
	for _, e := range newEntries {
		f.x.count(tx, e.group, e.member, +1)
	}
}

// list appends the entries of a row to list.
func (f *feed[K, V, G, M]) list(list []entry[G, M], k K, v V) []entry[G, M] {
	f.entries(k, v, func(g G, m M) { list = append(list, entry[G, M]{g, m}) })
	return list
}

func (x *index[G, M]) count(tx *Txn, g G, m M, by int) {
	if x.pending.Empty() {
		tx.indexes = append(tx.indexes, x)
	}
	x.pending.Add(g, m, by)
}

// settle applies the commit's changes of multiplicity to the groups.
func (x *index[G, M]) settle(tx *Txn) {
	for g, counts := range x.pending.All() {
		n := x.groups.ensure(g)
		it := x.groups.writable(n)
		if it.item.Apply(counts) {
			it.present = it.item.Members().Len() > 0
			tx.touch(LeafID(x.space, n), &it.changed)
		}
	}
	x.pending = omap.Tally[G, M]{}
}

func (x *index[G, M]) label() string              { return x.name }
func (x *index[G, M]) describe(n uint32) LeafInfo { return x.groups.info(x.name, n) }
func (x *index[G, M]) release(n uint32)           { x.groups.release(n) }
