package query

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Layers are lists of maps. Within a list, the first map that has a key determines the value of the key. A list can be read
// key by key; a reader then runs only when the value of its key changes. It can also be read as one merged map, which is
// updated at the cost of what changed.
type Layers[C comparable, K omap.Key[K], V omap.Value] interface {
	// Get returns the value of k in list c.
	Get(r *Reader, c C, k K) (V, bool)
	// Merged returns list c as one map.
	Merged(r *Reader, c C) omap.Map[K, V]
	// Observe makes the merged map of list c a root; see Query.Observe.
	Observe(c C, fn func(m omap.Map[K, V])) (release func())
}

// layers is a Layers with its cells.
type layers[C comparable, K omap.Key[K], V omap.Value] struct {
	base
	cells[C, stack[K, V]]
	of     func(r *Reader, c C) []omap.Map[K, V]
	entry  *memo[entryKey[C, K], V]
	merged *memo[C, omap.Map[K, V]]
}

type entryKey[C comparable, K comparable] struct {
	List C
	Key  K
}

// stack is one list of maps, with the merged map once it has been read.
type stack[K omap.Key[K], V omap.Value] struct {
	maps      []omap.Map[K, V]
	merged    omap.Map[K, V]
	hasMerged bool // merged is up to date
}

// DefineLayers adds lists of maps. of returns the maps of list c. It must be pure and read few things: the maps are collections, or small.
func DefineLayers[C comparable, K omap.Key[K], V omap.Value](g *Graph, name string, of func(r *Reader, c C) []omap.Map[K, V]) Layers[C, K, V] {
	x := &layers[C, K, V]{base: base{g: g, name: name}, of: of}
	x.b = &x.base
	g.add(x)
	x.entry = define(g, name+".entry", func(a, b V) bool { return a.ContentHash() == b.ContentHash() }, x.readEntry)
	x.merged = define(g, name+".merged", omap.Map[K, V].Equal, x.readMerged)
	return x
}

func (x *layers[C, K, V]) Get(r *Reader, c C, k K) (V, bool) {
	return x.entry.Get(r, entryKey[C, K]{c, k})
}

func (x *layers[C, K, V]) Merged(r *Reader, c C) omap.Map[K, V] {
	m, _ := x.merged.Get(r, c)
	return m
}

func (x *layers[C, K, V]) Observe(c C, fn func(m omap.Map[K, V])) (release func()) {
	return x.merged.Observe(c, func(m omap.Map[K, V], _ bool) { fn(m) })
}

func (x *layers[C, K, V]) readEntry(r *Reader, k entryKey[C, K]) (V, bool) {
	if r.naive || r.glance && !x.built(k.List) {
		return first(x.of(r, k.List), k.Key)
	}
	return first(x.read(r, k.List).maps, k.Key)
}

func (x *layers[C, K, V]) readMerged(r *Reader, c C) (omap.Map[K, V], bool) { //nolint:unparam // the form of a query
	if r.naive || r.glance && !x.built(c) {
		return merge(x.of(r, c)), true
	}
	s := x.read(r, c)
	if !s.hasMerged {
		s.merged, s.hasMerged = merge(s.maps), true // safe without a lock: there is one merged cell per list, so no other cell writes this
	}
	return s.merged, true
}

// read reads a list. Unlike other readers, its readers run only if their own key changes; see enqueueReaders.
func (x *layers[C, K, V]) read(r *Reader, c C) *stack[K, V] {
	return x.readBuilt(r, c)
}

func (x *layers[C, K, V]) run(slots []uint32, in lane) {
	x.g.runEach(x.space, slots, in, x.runOne)
}

func (x *layers[C, K, V]) runOne(slot uint32, in lane) {
	g, id, cell, r := x.g, x.id(slot), x.at(slot), x.g.main
	var now []omap.Map[K, V]
	base, rank := r.enter(x.space)
	outcome, reason := r.protect(func() { now = x.of(r, x.cells.key(slot)) })
	reads := append([]store.ID(nil), r.leave(base, rank)...)
	if outcome == aborted {
		r.abandoned = append(r.abandoned, reads...)
		g.absorb(r, in)
		g.enqueue(id, in)
		return
	}
	g.relink(id, cell.node, reads)
	g.absorb(r, in)
	g.ran[x.space]++
	kept := cell.flags&ready != 0
	if outcome == panicked {
		g.recordFault(id, cell.node, defect{Panicked, reason, kept})
		cell.flags |= ready | failed
		return
	}
	g.recordFault(id, cell.node, defect{})
	cell.flags = cell.flags&^failed | ready | present
	was := cell.val.maps
	cell.val.maps = now
	if kept {
		x.enqueueReaders(cell, x.cells.key(slot), was)
	}
}

// enqueueReaders enqueues the cells that read a key whose value may have changed, and updates the merged map.
func (x *layers[C, K, V]) enqueueReaders(cell cell[stack[K, V]], list C, was []omap.Map[K, V]) {
	s := cell.val
	var changes []omap.Change[K, V]
	for _, k := range touched(was, s.maps) {
		if _, n, ok := x.entry.find(entryKey[C, K]{list, k}); ok {
			x.g.enqueueUser(x.entry.b.id(n))
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
	if s.hasMerged {
		s.merged = omap.With(s.merged, changes...)
	}
	if _, n, ok := x.merged.find(list); ok {
		x.g.enqueueUser(x.merged.b.id(n))
	} else {
		s.merged, s.hasMerged = omap.Map[K, V]{}, false
	}
}

// touched returns the keys at which some map of the two lists differs, each once, in an order that depends on the maps only.
func touched[K omap.Key[K], V omap.Value](a, b []omap.Map[K, V]) (keys []K) {
	seen := make(map[K]struct{})
	for i := range max(len(a), len(b)) {
		var was, is omap.Map[K, V]
		if i < len(a) {
			was = a[i]
		}
		if i < len(b) {
			is = b[i]
		}
		for c := range omap.Diff(was, is) {
			if _, ok := seen[c.Key]; !ok {
				seen[c.Key] = struct{}{}
				keys = append(keys, c.Key)
			}
		}
	}
	return keys
}

// first returns the value of k in the first map that has k.
func first[K omap.Key[K], V omap.Value](maps []omap.Map[K, V], k K) (v V, ok bool) {
	for _, m := range maps {
		if v, ok = m.Get(k); ok {
			return v, true
		}
	}
	return v, false
}

// merge merges a list into one map. The cost grows with the size of all maps except the largest.
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
	return omap.With(maps[largest], changes...)
}

func (x *layers[C, K, V]) drop(slot uint32) { x.remove(slot) }

func (x *layers[C, K, V]) key(slot uint32) string { return x.text(slot) }
