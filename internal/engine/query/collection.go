package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/slab"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Output is the constraint on the values of a collection: a value with a name and a content hash.
type Output interface {
	omap.Value
	OutputName() string
}

// Collection is a map of outputs with one cell per element. A change of one element costs one element.
type Collection[C comparable, V Output] interface {
	// Get returns the whole collection as one map, and records the read.
	Get(r *Reader, k C) omap.Map[omap.Name, V]
	// Observe makes collection k a root; see Query.Observe.
	Observe(k C, fn func(m omap.Map[omap.Name, V])) (release func())
	// Element returns the cell of collection k that has the output called name. It is for the owner of the graph, between
	// commits. It reads all elements if no hint of an earlier call is right.
	Element(k C, name omap.Name) (ID, bool)
}

// collection is a Collection with its cells, whose maps assembly makes.
type collection[C comparable, V Output] struct {
	assembly[V]
	cells[C, collected[V]]
	naively func(r *Reader, k C) []V // the outputs of all elements, computed without cells
}

// assembly makes the maps of a collection. It is the part of a collection that does not depend on the type of the keys; see doc.go.
type assembly[V Output] struct {
	base
	values       *slab.Pages[collected[V]]
	elements     elements[V]
	elementCells *base
	hints        elementHints
}

// collected is the value of a collection's cell and the state of its computation.
type collected[V Output] struct {
	out      omap.Map[omap.Name, V]
	pending  map[uint32]contribution[V] // by element slot: what out holds of elements that changed and are not merged yet
	order    []uint32                   // keys of pending, in the order in which they were added; some may be merged already
	incoming []uint32                   // keys of pending that a first build has still to merge, portion by portion
	stale    []uint32                   // keys of pending with an output in out
	merging  bool                       // the first build has started to merge; every element is computed
	rebuild  bool                       // the last run failed; out must be built from all elements
	// collisions are the names that outputs of several elements have. A name collision is a violation of a rule (SameName).
	collisions map[omap.Name]struct{}
}

// contribution is the content of a collection's map from an element that has changed since.
type contribution[V Output] struct {
	old     []V
	removed bool // it is no longer an element of the collection
}

// removedElement is a former element of the collection with its last outputs. There are none if it was never computed.
type removedElement[V Output] struct {
	elem uint32
	old  []V
}

// elements is the view that a collection has of its element cells. It hides their types, which only Each knows.
type elements[V Output] interface {
	// link updates the edges from the element cells to the collection, adding at most max new ones. It returns the elements
	// that were added and removed; more is true if further elements are waiting to be linked.
	link(r *Reader, slot uint32, max int) (added []uint32, removed []removedElement[V], more bool)
	unlink(slot uint32)
	linked(slot uint32) []uint32 // in the order of the elements, each cell once
	duplicateKey(slot uint32) string
	outputs(elem uint32) (outputs []V, ready bool)
}

func (c *collection[C, V]) Get(r *Reader, k C) omap.Map[omap.Name, V] {
	r.checkRank(c.space)
	if r.glance {
		if cell, _, ok := c.find(k); ok && cell.flags&ready != 0 {
			return cell.val.out
		}
	}
	if r.naive || r.glance {
		return c.evaluateNaively(r, k)
	}
	return c.readBuilt(r, k).out
}

// evaluateNaively computes the map without a cell. A panic makes it empty, like the first run of a cell that panics.
func (c *collection[C, V]) evaluateNaively(r *Reader, k C) (m omap.Map[omap.Name, V]) {
	rank := r.rank
	r.rank = c.space
	r.protect(func() {
		var all []omap.Change[omap.Name, V]
		seen := make(map[omap.Name]struct{})
		for _, v := range c.naively(r, k) {
			name := omap.Name(v.OutputName())
			if _, ok := seen[name]; ok {
				continue
			}
			seen[name] = struct{}{}
			all = append(all, omap.Put(name, v))
		}
		m = omap.With(m, all...)
	})
	r.rank = rank
	return m
}

func (c *collection[C, V]) Observe(k C, fn func(m omap.Map[omap.Name, V])) (release func()) {
	cell, slot := c.ensure(k)
	return c.g.observe(c.id(slot), cell.node, func() { fn(cell.val.out) })
}

// noteChange records the outputs of an element that is about to change, until the collection runs.
func (c *assembly[V]) noteChange(slot, elem uint32) {
	v := c.values.At(slot)
	if _, ok := v.pending[elem]; !ok {
		old, _ := c.elements.outputs(elem)
		v.addPending(elem, contribution[V]{old: old})
	}
}

func (v *collected[V]) addPending(elem uint32, was contribution[V]) {
	if v.pending == nil {
		v.pending = make(map[uint32]contribution[V])
	}
	if _, ok := v.pending[elem]; !ok {
		v.order = append(v.order, elem)
	}
	v.pending[elem] = was
	if len(was.old) > 0 {
		v.stale = append(v.stale, elem)
	}
}

func (c *assembly[V]) run(slots []uint32, in lane) {
	c.g.runEach(c.space, slots, in, c.runOne)
}

func (c *assembly[V]) runOne(slot uint32, in lane) {
	g, id, n, v, r := c.g, c.id(slot), c.node(slot), c.values.At(slot), c.g.main
	var out omap.Map[omap.Name, V]
	complete := false
	base, rank := r.enter(c.space)
	outcome, reason := r.protect(func() {
		if more := c.relinkElements(r, slot, n, v, in); more {
			return
		}
		if complete = v.merging || c.enqueueElements(v, in); !complete {
			return
		}
		if complete = in == laneUpdate || n.flags&ready != 0 || !c.mergePortion(slot, v); complete {
			out = c.merge(slot, v, v.order)
		}
	})
	reads := append([]store.ID(nil), r.leave(base, rank)...)
	if outcome == aborted {
		r.abandoned = append(r.abandoned, reads...)
	} else {
		g.relink(id, n, reads)
	}
	g.absorb(r, in)
	switch {
	case outcome == aborted || outcome == done && !complete:
		g.enqueue(id, in)
	case outcome == panicked:
		g.ran[c.space]++
		if n.flags&ready == 0 {
			v.out = omap.Map[omap.Name, V]{} // no part of a first build is a last good value
		}
		g.recordFault(id, n, defect{Panicked, reason, n.flags&ready != 0})
		n.flags |= ready | present | failed
		*v = collected[V]{out: v.out, rebuild: true}
	default:
		g.ran[c.space]++
		g.recordFault(id, n, c.defect(slot, v))
		c.settle(n, v, id, out)
	}
}

// defect returns the rule that the elements of a collection violate, if any. The collection has run.
func (c *assembly[V]) defect(slot uint32, v *collected[V]) defect {
	if key := c.elements.duplicateKey(slot); key != "" {
		return defect{SameKey, fmt.Sprintf("several elements have the key %s; they count as one element", key), true}
	}
	if len(v.collisions) > 0 {
		return defect{SameName, fmt.Sprintf("%d names belong to outputs of several elements, %q among them; the output of the first element is used",
			len(v.collisions), slices.Min(slices.Collect(maps.Keys(v.collisions)))), true}
	}
	return defect{}
}

// settle stores the new map. If it differs from the old one, the cells that read it are enqueued.
func (c *assembly[V]) settle(n *node, v *collected[V], id store.ID, out omap.Map[omap.Name, V]) {
	first := n.flags&ready == 0
	n.flags = n.flags&^failed | ready | present
	same := out.Equal(v.out)
	*v = collected[V]{out: out, collisions: v.collisions}
	if !first && same {
		return
	}
	n.changed = c.g.rev
	for u := range n.users.all() {
		c.g.enqueueUser(u)
	}
	if n.flags&observed != 0 {
		c.g.publish = append(c.g.publish, id)
	}
}

// relinkElements records which elements were added and removed. A first build adds only a portion of them at a time. It
// reports whether there are more.
func (c *assembly[V]) relinkElements(r *Reader, slot uint32, n *node, v *collected[V], in lane) (more bool) {
	added, removed, more := c.elements.link(r, slot, c.g.maxElements(n, in))
	if all := len(added) + len(removed); v.pending == nil && all > 0 {
		v.pending = make(map[uint32]contribution[V], all)
	}
	if v.rebuild {
		v.pending, v.order = nil, nil
		added = c.elements.linked(slot)
		removed = nil
	}
	for _, l := range removed {
		if p, ok := v.pending[l.elem]; ok {
			l.old = p.old
		}
		v.addPending(l.elem, contribution[V]{old: l.old, removed: true})
	}
	for _, elem := range added {
		v.addPending(elem, contribution[V]{old: v.pending[elem].old})
	}
	if n.flags&ready == 0 {
		v.incoming = append(v.incoming, added...)
		v.merging = v.merging && len(added) == 0
		c.g.budget -= len(added) / elementsPerCell
	}
	return more
}

// enqueueElements enqueues the pending elements that are not computed, and reports whether all are computed.
func (c *assembly[V]) enqueueElements(v *collected[V], in lane) bool {
	complete := true
	for _, elem := range v.order {
		if p, ok := v.pending[elem]; !ok || p.removed {
			continue
		}
		if _, ready := c.elements.outputs(elem); !ready {
			c.g.enqueue(c.elementCells.id(elem), in)
			complete = false
		}
	}
	return complete
}

// elementsPerCell is the number of elements that cost a collection about as much as running one cell.
const elementsPerCell = 10

// mergePortion merges one portion of the incoming elements into the map of a first build, so that a large build does not
// delay commits. It reports whether more elements remain.
func (c *assembly[V]) mergePortion(slot uint32, v *collected[V]) bool {
	portion := c.g.options.Portion
	if len(v.incoming) <= portion {
		return false
	}
	now := make([]uint32, 0, portion)
	for _, elem := range v.incoming[:portion] {
		if p, ok := v.pending[elem]; ok && !p.removed {
			now = append(now, elem)
		}
	}
	now = append(now, v.stale...) // an element of this portion may have one of their names
	v.out = c.merge(slot, v, now)
	for _, elem := range now {
		delete(v.pending, elem)
	}
	v.incoming, v.stale, v.merging = v.incoming[portion:], nil, true
	c.g.budget -= portion / elementsPerCell
	return true
}

// nameUse is the use of a name by an output of an element, either the element's old output or its present one.
type nameUse struct {
	name omap.Name
	elem uint32
	at   int32 // index of the output in the present outputs of the element; -1 for an old output
}

// merge returns the map after the changes of those elems that are pending.
func (c *assembly[V]) merge(slot uint32, v *collected[V], elems []uint32) omap.Map[omap.Name, V] {
	out := v.out
	if v.rebuild {
		out, v.collisions = omap.Map[omap.Name, V]{}, nil
	}
	names := c.names(v, elems)
	changes := make([]omap.Change[omap.Name, V], 0, len(names))
	var collisions map[omap.Name][]V
	for len(names) > 0 {
		one, n, now := names[0], 1, 0
		for n < len(names) && names[n].name == one.name {
			n++
		}
		had := one.at < 0
		for _, o := range names[:n] {
			if o.at >= 0 {
				one, now = o, now+1
			}
		}
		names = names[n:]
		_, open := v.collisions[one.name]
		switch {
		case open || now > 1 || now == 1 && !had && out.Has(one.name):
			if collisions == nil {
				collisions = make(map[omap.Name][]V)
			}
			collisions[one.name] = nil
		case now == 0:
			changes = append(changes, omap.Del[omap.Name, V](one.name))
		default:
			outputs, _ := c.elements.outputs(one.elem)
			changes = append(changes, omap.Put(one.name, outputs[one.at]))
		}
	}
	return omap.With(out, c.resolveCollisions(slot, v, collisions, changes)...)
}

// names returns the old and the present names of the elements in order. For one name, old uses come first.
func (c *assembly[V]) names(v *collected[V], elems []uint32) []nameUse {
	elems = slices.Clone(elems)
	slices.Sort(elems)
	elems = slices.Compact(elems)
	list := make([]nameUse, 0, 2*len(elems))
	for _, elem := range elems {
		p, ok := v.pending[elem]
		if !ok {
			continue
		}
		for _, o := range p.old {
			list = append(list, nameUse{omap.Name(o.OutputName()), elem, -1})
		}
		if p.removed {
			continue
		}
		outputs, _ := c.elements.outputs(elem)
		for i, o := range outputs {
			list = append(list, nameUse{omap.Name(o.OutputName()), elem, int32(i)})
		}
	}
	slices.SortFunc(list, func(a, b nameUse) int { return cmp.Or(a.name.Compare(b.name), cmp.Compare(a.at, b.at)) })
	return list
}

func (c *collection[C, V]) drop(slot uint32) {
	c.elements.unlink(slot)
	delete(c.hints, slot)
	c.remove(slot)
}

func (c *collection[C, V]) key(slot uint32) string { return c.text(slot) }
