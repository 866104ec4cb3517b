package query

import (
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Each adds a collection. in yields the elements of collection c (an index group, a group's keys, another collection:
// only the keys count); elem is run per element under key(c, e), which is different for different elements, and yields
// 0..n outputs, whose names differ from those of other elements.
func Each[C comparable, E omap.Key[E], X omap.Value, K comparable, V Output](g *Graph, name string,
	in func(r *Reader, c C) omap.Map[E, X], elem *Query[K, []V], key func(c C, e E) K) *Collection[C, V] {
	col := &Collection[C, V]{g: g, name: name}
	col.cells.g = g
	col.space = g.add(col)
	col.elements = &members[C, E, X, K, V]{
		g: g, space: col.space, in: in, elem: elem, key: key, now: make(map[uint32]omap.Map[E, X]),
	}
	elem.sinks[col.space] = col.note
	return col
}

// members are the elements of the collections of one Each.
type members[C comparable, E omap.Key[E], X omap.Value, K comparable, V Output] struct {
	g     *Graph
	space int // the collection's
	in    func(r *Reader, c C) omap.Map[E, X]
	elem  *Query[K, []V]
	key   func(c C, e E) K
	now   map[uint32]omap.Map[E, X] // the linked elements, by collection slot
}

func (m *members[C, E, X, K, V]) link(r *Reader, slot uint32, c C, max int) (entered []uint32, left map[uint32][]V, more bool) {
	old, now := m.now[slot], m.in(r, c)
	var came, went []K
	var seen []omap.Change[E, X]
	for ch := range omap.Diff(old, now) {
		if more = len(came) == max; more {
			now = old.With(seen...)
			break
		}
		seen = append(seen, ch)
		switch {
		case !ch.HadOld:
			came = append(came, m.key(c, ch.Key))
		case !ch.HasNew:
			went = append(went, m.key(c, ch.Key))
		}
	}
	m.now[slot] = now
	collection := store.MakeID(m.space, slot)
	for _, k := range went {
		cell, n, _ := m.elem.find(k)
		if cell.flags&ready != 0 {
			if left == nil {
				left = make(map[uint32][]V)
			}
			left[n] = cell.val
		}
		m.g.unlink(m.id(n), collection)
	}
	for _, k := range came {
		cell, n := m.elem.ensure(k)
		cell.users.add(collection)
		entered = append(entered, n)
	}
	return entered, left, more
}

func (m *members[C, E, X, K, V]) unlink(slot uint32, c C) {
	for _, n := range m.linked(slot, c) {
		m.g.unlink(m.id(n), store.MakeID(m.space, slot))
	}
	delete(m.now, slot)
}

func (m *members[C, E, X, K, V]) linked(slot uint32, c C) []uint32 {
	now := m.now[slot]
	list := make([]uint32, 0, now.Len())
	for e := range now.All() {
		_, n, _ := m.elem.find(m.key(c, e))
		list = append(list, n)
	}
	return list
}

func (m *members[C, E, X, K, V]) outputs(elem uint32) ([]V, bool) {
	cell := m.elem.at(elem)
	return cell.val, cell.flags&ready != 0
}

func (m *members[C, E, X, K, V]) id(elem uint32) store.ID { return store.MakeID(m.elem.space, elem) }

func (m *members[C, E, X, K, V]) naively(r *Reader, c C) []V {
	var all []V
	for e := range m.in(r, c).All() {
		outputs, _ := m.elem.Get(r, m.key(c, e))
		all = append(all, outputs...)
	}
	return all
}
