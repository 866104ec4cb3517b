package query

import (
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Layers are lists of maps; of each list, the first map that has a key wins. A list can be read key by key, and then a
// reader runs only when its key changes, or as one merged map, which is kept up to date at the cost of what changed.
type Layers[C comparable, K omap.Key[K], V omap.Value] struct {
	g     *Graph
	name  string
	space int
	cells[C, stack[K, V]]
	of     func(r *Reader, c C) []omap.Map[K, V]
	entry  *Query[entryKey[C, K], V]
	merged *Query[C, omap.Map[K, V]]
}

type entryKey[C comparable, K comparable] struct {
	List C
	Key  K
}

// stack is one list of maps, and the merged map once somebody has read it.
type stack[K omap.Key[K], V omap.Value] struct {
	maps  []omap.Map[K, V]
	all   omap.Map[K, V]
	whole bool // all is kept
}

// DefineLayers adds the lists that of yields. of is pure and reads few things: the maps are collections, or small.
func DefineLayers[C comparable, K omap.Key[K], V omap.Value](g *Graph, name string, of func(r *Reader, c C) []omap.Map[K, V]) *Layers[C, K, V] {
	x := &Layers[C, K, V]{g: g, name: name, of: of}
	x.cells.g = g
	x.space = g.add(x)
	x.entry = Define(g, name+".entry", func(a, b V) bool { return a.ContentHash() == b.ContentHash() }, x.readEntry)
	x.merged = Define(g, name+".merged", omap.Map[K, V].Equal, x.readMerged)
	return x
}

// Get reads what the list has under a key.
func (x *Layers[C, K, V]) Get(r *Reader, c C, k K) (V, bool) {
	return x.entry.Get(r, entryKey[C, K]{c, k})
}

// Merged reads the list as one map.
func (x *Layers[C, K, V]) Merged(r *Reader, c C) omap.Map[K, V] {
	m, _ := x.merged.Get(r, c)
	return m
}

// Observe makes the merged map of a list a root; see Query.Observe.
func (x *Layers[C, K, V]) Observe(c C, fn func(m omap.Map[K, V])) (release func()) {
	return x.merged.Observe(c, func(m omap.Map[K, V], _ bool) { fn(m) })
}

func (x *Layers[C, K, V]) readEntry(r *Reader, k entryKey[C, K]) (V, bool) {
	if r.naive || r.glance && !x.built(k.List) {
		return first(x.of(r, k.List), k.Key)
	}
	return first(x.read(r, k.List).maps, k.Key)
}

func (x *Layers[C, K, V]) readMerged(r *Reader, c C) (omap.Map[K, V], bool) { //nolint:unparam // the form of a query
	if r.naive || r.glance && !x.built(c) {
		return merge(x.of(r, c)), true
	}
	s := x.read(r, c)
	if !s.whole {
		s.all, s.whole = merge(s.maps), true // there is one cell per list, so nobody else does this now
	}
	return s.all, true
}

// read reads a list. Its readers are told of changes of their own keys only; see tell.
func (x *Layers[C, K, V]) read(r *Reader, c C) *stack[K, V] {
	return &x.await(r, x.space, c).val
}

func (x *Layers[C, K, V]) run(slots []uint32, in lane) {
	x.g.inTurn(x.space, slots, in, x.runOne)
}

func (x *Layers[C, K, V]) runOne(slot uint32, in lane) {
	g, id, cell, r := x.g, store.CellID(x.space, slot), x.at(slot), x.g.main
	var now []omap.Map[K, V]
	base, rank := r.enter(x.space)
	outcome, reason := r.protect(func() { now = x.of(r, cell.key) })
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
	kept := cell.flags&ready != 0
	if outcome == panicked {
		g.judge(id, &cell.node, verdict{Panicked, reason, kept})
		cell.flags |= ready | failed
		return
	}
	g.judge(id, &cell.node, verdict{})
	cell.flags = cell.flags&^failed | ready | present
	was := cell.val.maps
	cell.val.maps = now
	if kept {
		x.tell(cell, was)
	}
}

// tell makes those run who read a key that changed.
func (x *Layers[C, K, V]) tell(cell *entry[C, stack[K, V]], was []omap.Map[K, V]) {
	s := &cell.val
	var changes []omap.Change[K, V]
	for _, k := range touched(was, s.maps) {
		if _, n, ok := x.entry.find(entryKey[C, K]{cell.key, k}); ok {
			x.g.enqueueUser(store.CellID(x.entry.space, n))
		}
		if v, ok := first(s.maps, k); ok {
			changes = append(changes, omap.Put(k, v))
		} else {
			changes = append(changes, omap.Del[K, V](k))
		}
	}
	if len(changes) == 0 {
		return
	}
	cell.changed = x.g.rev
	if s.whole {
		s.all = s.all.With(changes...)
	}
	if _, n, ok := x.merged.find(cell.key); ok {
		x.g.enqueueUser(store.CellID(x.merged.space, n))
	} else {
		s.all, s.whole = omap.Map[K, V]{}, false
	}
}

// touched are the keys under which some map of the lists differs, each once, in an order that the maps determine.
func touched[K omap.Key[K], V omap.Value](a, b []omap.Map[K, V]) (keys []K) {
	told := make(map[K]struct{})
	for i := range max(len(a), len(b)) {
		var was, is omap.Map[K, V]
		if i < len(a) {
			was = a[i]
		}
		if i < len(b) {
			is = b[i]
		}
		for c := range omap.Diff(was, is) {
			if _, ok := told[c.Key]; !ok {
				told[c.Key] = struct{}{}
				keys = append(keys, c.Key)
			}
		}
	}
	return keys
}

// first finds a key in the first map that has it.
func first[K omap.Key[K], V omap.Value](maps []omap.Map[K, V], k K) (v V, ok bool) {
	for _, m := range maps {
		if v, ok = m.Get(k); ok {
			return v, true
		}
	}
	return v, false
}

// merge makes one map of a list, at the cost of all maps but the largest.
func merge[K omap.Key[K], V omap.Value](maps []omap.Map[K, V]) omap.Map[K, V] {
	largest := 0
	for i, m := range maps {
		if m.Len() > maps[largest].Len() {
			largest = i
		}
	}
	var changes []omap.Change[K, V]
	for i := len(maps) - 1; i >= 0; i-- {
		if i == largest {
			continue
		}
		for k := range maps[i].All() {
			v, _ := first(maps, k)
			changes = append(changes, omap.Put(k, v))
		}
	}
	if len(maps) == 0 {
		return omap.Map[K, V]{}
	}
	return maps[largest].With(changes...)
}

func (x *Layers[C, K, V]) drop(slot uint32) { x.cells.drop(slot) }

func (x *Layers[C, K, V]) label() string       { return x.name }
func (x *Layers[C, K, V]) key(slot uint32) any { return x.at(slot).key }
