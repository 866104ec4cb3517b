package query

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Each adds a collection. in yields the elements of collection c (an index group, a group's keys, another collection:
// only the keys count); elem is run per element under key(c, e), which is different for different elements, and yields
// 0..n outputs, whose names differ from those of other elements. A strict graph panics if it is not so. Otherwise the
// collection has a fault, elements of one key count as one, and of outputs of one name that of the first element is served.
func Each[C comparable, E omap.Key[E], X omap.Value, K comparable, V Output](g *Graph, name string,
	in func(r *Reader, c C) omap.Map[E, X], elem *Query[K, []V], key func(c C, e E) K) *Collection[C, V] {
	col := &Collection[C, V]{g: g, name: name}
	col.cells.g = g
	col.space = g.add(col)
	col.elements = &members[C, E, X, K, V]{
		g: g, space: col.space, in: in, elem: elem, key: key, now: make(map[uint32]omap.Map[E, X]),
		repeats: make(map[uint32]map[uint32]int),
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
	// repeats counts, by collection slot and element slot, the elements that have the key of another one. There are none
	// unless key breaks its rule.
	repeats map[uint32]map[uint32]int
}

func (m *members[C, E, X, K, V]) link(r *Reader, slot uint32, c C, max int) (entered []uint32, left []leaver[V], more bool) {
	old, now := m.now[slot], m.in(r, c)
	now, more = portion(old, now, max)
	m.now[slot] = now
	collection := store.CellID(m.space, slot)
	for ch := range omap.Diff(old, now) { // who leaves goes first: who comes may have the same key
		if ch.HasNew {
			continue
		}
		cell, n, _ := m.elem.find(m.key(c, ch.Key))
		if m.repeats[slot][n] > 0 {
			m.repeat(slot, n, -1)
			continue
		}
		left = append(left, leaver[V]{n, cell.val}) // none if it was not computed yet
		m.g.unlink(m.id(n), collection)
	}
	for ch := range omap.Diff(old, now) {
		if ch.HadOld {
			continue
		}
		k := m.key(c, ch.Key)
		cell, n := m.elem.ensure(k)
		if cell.users.has(collection) {
			if m.g.options.Strict {
				panic(ruleError(fmt.Sprintf("%s: several elements have the key %v", m.g.spaces[m.space].label(), k)))
			}
			m.repeat(slot, n, +1)
			continue
		}
		cell.users.add(collection)
		entered = append(entered, n)
	}
	return entered, left, more
}

// portion is the map that goes from old towards now as far as max new keys, and whether there is more to come.
func portion[E omap.Key[E], X omap.Value](old, now omap.Map[E, X], max int) (upTo omap.Map[E, X], more bool) {
	if now.Len() <= max {
		return now, false
	}
	var seen []omap.Change[E, X]
	came := 0
	for ch := range omap.Diff(old, now) {
		if came == max {
			return old.With(seen...), true
		}
		seen = append(seen, ch)
		if !ch.HadOld {
			came++
		}
	}
	return now, false
}

// repeat counts an element that has the key of another one.
func (m *members[C, E, X, K, V]) repeat(slot, elem uint32, by int) {
	if m.repeats[slot] == nil {
		m.repeats[slot] = make(map[uint32]int)
	}
	if m.repeats[slot][elem] += by; m.repeats[slot][elem] == 0 {
		delete(m.repeats[slot], elem)
	}
	if len(m.repeats[slot]) == 0 {
		delete(m.repeats, slot)
	}
}

// repeated describes the first key, by its text, that several elements have; it is empty if there is none.
func (m *members[C, E, X, K, V]) repeated(slot uint32) string {
	first := ""
	for n := range m.repeats[slot] {
		if key := fmt.Sprint(m.elem.at(n).key); first == "" || key < first {
			first = key
		}
	}
	return first
}

func (m *members[C, E, X, K, V]) unlink(slot uint32, c C) {
	for _, n := range m.linked(slot, c) {
		m.g.unlink(m.id(n), store.CellID(m.space, slot))
	}
	delete(m.now, slot)
	delete(m.repeats, slot)
}

func (m *members[C, E, X, K, V]) linked(slot uint32, c C) []uint32 {
	now := m.now[slot]
	list := make([]uint32, 0, now.Len())
	var told map[uint32]bool
	if len(m.repeats[slot]) > 0 {
		told = make(map[uint32]bool, now.Len())
	}
	for e := range now.All() {
		_, n, _ := m.elem.find(m.key(c, e))
		if told[n] {
			continue
		}
		if told != nil {
			told[n] = true
		}
		list = append(list, n)
	}
	return list
}

func (m *members[C, E, X, K, V]) outputs(elem uint32) ([]V, bool) {
	cell := m.elem.at(elem)
	return cell.val, cell.flags&ready != 0
}

func (m *members[C, E, X, K, V]) id(elem uint32) store.ID { return store.CellID(m.elem.space, elem) }

func (m *members[C, E, X, K, V]) naively(r *Reader, c C) []V {
	var all []V
	for e := range m.in(r, c).All() {
		outputs, _ := m.elem.Get(r, m.key(c, e))
		all = append(all, outputs...)
	}
	return all
}
