package query

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// Each adds a collection. in returns the elements of collection c as the keys of a map, such as an index group, the keys of a
// grouping, or another collection. For each element e, the query elem runs with the key that key(c, e) returns. It returns any
// number of outputs. Different elements must have different keys, and outputs of different elements must have different names.
// A strict graph panics if they have not. Otherwise the collection has a Fault: elements with one key count as one
// element, and of several outputs with one name, the output of the first element is used.
func Each[C comparable, E omap.Key[E], X omap.Value, K comparable, V Output](g *Graph, name string,
	in func(r *Reader, c C) omap.Map[E, X], elem Query[K, []V], key func(c C, e E) K) Collection[C, V] {
	cells := elem.(*memo[K, []V])
	col := &collection[C, V]{}
	col.b = &col.base
	m := &members[C, E, X, K, V]{
		g: g, of: &col.cells, in: in, elem: cells, key: key, now: make(map[uint32]omap.Map[E, X]),
		duplicates: make(map[uint32]map[uint32]int),
	}
	col.g, col.name = g, name
	col.assembly.values, col.elements, col.elementCells = &col.cells.values, m, cells.b
	col.naively = m.naively
	g.add(col)
	cells.runs.sinks[col.space] = col.noteChange
	return col
}

// members holds the elements of the collections of one Each.
type members[C comparable, E omap.Key[E], X omap.Value, K comparable, V Output] struct {
	g    *Graph
	of   *cells[C, collected[V]]
	in   func(r *Reader, c C) omap.Map[E, X]
	elem *memo[K, []V]
	key  func(c C, e E) K
	now  map[uint32]omap.Map[E, X] // the linked elements, by collection slot
	// duplicates counts, by collection slot and element slot, the further elements that have the key of another element. It
	// is empty unless key violates its rule.
	duplicates map[uint32]map[uint32]int
}

func (m *members[C, E, X, K, V]) link(r *Reader, slot uint32, max int) (added []uint32, removed []removedElement[V], more bool) {
	c := m.of.key(slot)
	old, now := m.now[slot], m.in(r, c)
	now, more = portion(old, now, max)
	m.now[slot] = now
	collection := m.of.b.id(slot)
	for ch := range omap.Diff(old, now) { // removals come first, because an added element may have the key of a removed one
		if ch.HasNew {
			continue
		}
		cell, n, _ := m.elem.find(m.key(c, ch.Key))
		if m.duplicates[slot][n] > 0 {
			m.countDuplicate(slot, n, -1)
			continue
		}
		removed = append(removed, removedElement[V]{n, *cell.val}) // cell.val is empty if the element was never computed
		m.g.unlink(m.elem.b.id(n), collection)
	}
	for ch := range omap.Diff(old, now) {
		if ch.HadOld {
			continue
		}
		k := m.key(c, ch.Key)
		cell, n := m.elem.ensure(k)
		if cell.users.has(collection) {
			if m.g.options.Strict {
				panic(ruleError(fmt.Sprintf("%s: several elements have the key %v", m.of.b.name, k)))
			}
			m.countDuplicate(slot, n, +1)
			continue
		}
		cell.users.add(collection)
		added = append(added, n)
	}
	return added, removed, more
}

// portion returns old with the first changes towards now, up to max new keys, and whether changes remain.
func portion[E omap.Key[E], X omap.Value](old, now omap.Map[E, X], max int) (upTo omap.Map[E, X], more bool) {
	if now.Len() <= max {
		return now, false
	}
	var seen []omap.Change[E, X]
	came := 0
	for ch := range omap.Diff(old, now) {
		if came == max {
			return omap.With(old, seen...), true
		}
		seen = append(seen, ch)
		if !ch.HadOld {
			came++
		}
	}
	return now, false
}

// countDuplicate counts an element that has the key of another element of the collection.
func (m *members[C, E, X, K, V]) countDuplicate(slot, elem uint32, by int) {
	if m.duplicates[slot] == nil {
		m.duplicates[slot] = make(map[uint32]int)
	}
	if m.duplicates[slot][elem] += by; m.duplicates[slot][elem] == 0 {
		delete(m.duplicates[slot], elem)
	}
	if len(m.duplicates[slot]) == 0 {
		delete(m.duplicates, slot)
	}
}

// duplicateKey returns the first key, in the order of their texts, that several elements have; "" if there is none.
func (m *members[C, E, X, K, V]) duplicateKey(slot uint32) string {
	first := ""
	for n := range m.duplicates[slot] {
		if key := m.elem.text(n); first == "" || key < first {
			first = key
		}
	}
	return first
}

func (m *members[C, E, X, K, V]) unlink(slot uint32) {
	for _, n := range m.linked(slot) {
		m.g.unlink(m.elem.b.id(n), m.of.b.id(slot))
	}
	delete(m.now, slot)
	delete(m.duplicates, slot)
}

func (m *members[C, E, X, K, V]) linked(slot uint32) []uint32 {
	c, now := m.of.key(slot), m.now[slot]
	list := make([]uint32, 0, now.Len())
	var seen map[uint32]bool
	if len(m.duplicates[slot]) > 0 {
		seen = make(map[uint32]bool, now.Len())
	}
	for e := range now.All() {
		_, n, _ := m.elem.find(m.key(c, e))
		if seen[n] {
			continue
		}
		if seen != nil {
			seen[n] = true
		}
		list = append(list, n)
	}
	return list
}

func (m *members[C, E, X, K, V]) outputs(elem uint32) ([]V, bool) {
	cell := m.elem.at(elem)
	return *cell.val, cell.flags&ready != 0
}

func (m *members[C, E, X, K, V]) naively(r *Reader, c C) []V {
	var all []V
	for e := range m.in(r, c).All() {
		outputs, _ := m.elem.Get(r, m.key(c, e))
		all = append(all, outputs...)
	}
	return all
}
