package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Output is what a collection holds: named, with a content hash.
type Output interface {
	omap.Value
	OutputName() string
}

// Collection is a keyed collection with one cell per element; a change of one element costs one element.
type Collection[C comparable, V Output] struct {
	g     *Graph
	name  string
	space int
	cells[C, collected[V]]
	elements elements[C, V]
	places   places
}

// collected is a collection's value and what is under way to it.
type collected[V Output] struct {
	out     omap.Map[omap.Name, V]
	pending map[uint32]contribution[V] // by element slot: what out holds of elements that changed
	order   []uint32                   // the keys of pending in the order in which they came; some may be done
	coming  []uint32                   // those among pending that a first build takes in, portion by portion
	stale   []uint32                   // those among pending of which out holds something
	merging bool                       // a first build has begun to: all of them are computed
	rebuild bool                       // out is to be built from all elements: the last run failed
	// disputed are the names that outputs of several elements have. There are none unless the queries break a rule.
	disputed map[omap.Name]struct{}
}

// contribution is what a collection's map still holds of an element that has changed since.
type contribution[V Output] struct {
	old  []V
	left bool // no element of the collection any longer
}

// leaver is an element that is none of the collection any longer, with the outputs it had; none if it was not computed yet.
type leaver[V Output] struct {
	elem uint32
	old  []V
}

// elements is what a collection needs to know of its element cells; Each hides their types behind it.
type elements[C comparable, V Output] interface {
	// link brings the edges from the element cells up to date, as far as max new ones go, and returns what came and went; more
	// if there is more to come.
	link(r *Reader, slot uint32, c C, max int) (entered []uint32, left []leaver[V], more bool)
	unlink(slot uint32, c C)
	linked(slot uint32, c C) []uint32 // in the order of the elements, each cell once
	repeated(slot uint32) string
	outputs(elem uint32) (outputs []V, ready bool)
	member(elem uint32, collection store.ID) bool
	id(elem uint32) store.ID
	naively(r *Reader, c C) []V
}

// Get reads the whole collection as one map.
func (c *Collection[C, V]) Get(r *Reader, k C) omap.Map[omap.Name, V] {
	r.below(c.space)
	if r.glance {
		if cell, _, ok := c.find(k); ok && cell.flags&ready != 0 {
			return cell.val.out
		}
	}
	if r.naive || r.glance {
		return c.evaluateNaively(r, k)
	}
	return c.await(r, c.space, k).val.out
}

// evaluateNaively builds the map from nothing; a broken element makes it empty, as it does the cell's first run.
func (c *Collection[C, V]) evaluateNaively(r *Reader, k C) (m omap.Map[omap.Name, V]) {
	rank := r.rank
	r.rank = c.space
	r.protect(func() {
		var all []omap.Change[omap.Name, V]
		told := make(map[omap.Name]struct{})
		for _, v := range c.elements.naively(r, k) {
			name := omap.Name(v.OutputName())
			if _, ok := told[name]; ok {
				continue
			}
			told[name] = struct{}{}
			all = append(all, omap.Put(name, v))
		}
		m = m.With(all...)
	})
	r.rank = rank
	return m
}

// Observe makes collection k a root; see Query.Observe.
func (c *Collection[C, V]) Observe(k C, fn func(m omap.Map[omap.Name, V])) (release func()) {
	cell, slot := c.ensure(k)
	return c.g.observe(store.CellID(c.space, slot), &cell.node, func() { fn(cell.val.out) })
}

// note keeps what out holds of an element that changed, until the collection runs.
func (c *Collection[C, V]) note(slot, elem uint32, old []V) {
	v := &c.at(slot).val
	if _, ok := v.pending[elem]; !ok {
		v.await(elem, contribution[V]{old: old})
	}
}

func (v *collected[V]) await(elem uint32, was contribution[V]) {
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

func (c *Collection[C, V]) run(slots []uint32, in lane) {
	c.g.inTurn(c.space, slots, in, c.runOne)
}

func (c *Collection[C, V]) runOne(slot uint32, in lane) {
	g, id, cell, r := c.g, store.CellID(c.space, slot), c.at(slot), c.g.main
	var out omap.Map[omap.Name, V]
	complete := false
	base, rank := r.enter(c.space)
	outcome, reason := r.protect(func() {
		if more := c.relinkElements(r, slot, cell, in); more {
			return
		}
		if complete = cell.val.merging || c.awaken(&cell.val, in); !complete {
			return
		}
		if complete = in == lane0 || cell.flags&ready != 0 || !c.mergeSome(slot, &cell.val); complete {
			out = c.merge(slot, &cell.val, cell.val.order)
		}
	})
	reads := append([]store.ID(nil), r.leave(base, rank)...)
	if outcome == gaveUp {
		r.lost = append(r.lost, reads...)
	} else {
		g.relink(id, &cell.node, reads)
	}
	g.absorb(r, in)
	switch {
	case outcome == gaveUp || outcome == done && !complete:
		g.enqueue(id, in)
	case outcome == panicked:
		g.ran[c.space]++
		if cell.flags&ready == 0 {
			cell.val.out = omap.Map[omap.Name, V]{} // no part of a first build is a last good value
		}
		g.judge(id, &cell.node, verdict{Panicked, reason, cell.flags&ready != 0})
		cell.flags |= ready | present | failed
		cell.val = collected[V]{out: cell.val.out, rebuild: true}
	default:
		g.ran[c.space]++
		g.judge(id, &cell.node, c.verdict(slot, &cell.val))
		c.settle(cell, id, out)
	}
}

// verdict is what is wrong with the elements of a collection that has run.
func (c *Collection[C, V]) verdict(slot uint32, v *collected[V]) verdict {
	if key := c.elements.repeated(slot); key != "" {
		return verdict{SameKey, fmt.Sprintf("several elements have the key %s and count as one", key), true}
	}
	if len(v.disputed) > 0 {
		return verdict{SameName, fmt.Sprintf("%d names are those of outputs of several elements, %q among them; that of the first element is served",
			len(v.disputed), slices.Min(slices.Collect(maps.Keys(v.disputed)))), true}
	}
	return verdict{}
}

// settle installs the new map and makes those who read it run, if it differs.
func (c *Collection[C, V]) settle(cell *entry[C, collected[V]], id store.ID, out omap.Map[omap.Name, V]) {
	first := cell.flags&ready == 0
	cell.flags = cell.flags&^failed | ready | present
	same := out.Equal(cell.val.out)
	cell.val = collected[V]{out: out, disputed: cell.val.disputed}
	if !first && same {
		return
	}
	cell.changed = c.g.rev
	for u := range cell.users.all() {
		c.g.enqueueUser(u)
	}
	if cell.flags&observed != 0 {
		c.g.publish = append(c.g.publish, id)
	}
}

// relinkElements notes which elements came and went, a portion of them if it is a first build that may take its time, and
// reports whether there are more.
func (c *Collection[C, V]) relinkElements(r *Reader, slot uint32, cell *entry[C, collected[V]], in lane) (more bool) {
	entered, left, more := c.elements.link(r, slot, cell.key, c.g.atOnce(&cell.node, in))
	v := &cell.val
	if n := len(entered) + len(left); v.pending == nil && n > 0 {
		v.pending = make(map[uint32]contribution[V], n)
	}
	if v.rebuild {
		v.pending, v.order = nil, nil
		entered = c.elements.linked(slot, cell.key)
		left = nil
	}
	for _, l := range left {
		if p, ok := v.pending[l.elem]; ok {
			l.old = p.old
		}
		v.await(l.elem, contribution[V]{old: l.old, left: true})
	}
	for _, elem := range entered {
		v.await(elem, contribution[V]{old: v.pending[elem].old})
	}
	if cell.flags&ready == 0 {
		v.coming = append(v.coming, entered...)
		v.merging = v.merging && len(entered) == 0
		c.g.budget -= len(entered) / elementsPerCell
	}
	return more
}

// awaken sees to it that all pending elements are computed; false if some are not yet.
func (c *Collection[C, V]) awaken(v *collected[V], in lane) bool {
	complete := true
	for _, elem := range v.order {
		if p, ok := v.pending[elem]; !ok || p.left {
			continue
		}
		if _, ready := c.elements.outputs(elem); !ready {
			c.g.enqueue(c.elements.id(elem), in)
			complete = false
		}
	}
	return complete
}

// elementsPerCell is how many elements cost a collection about what a cell costs.
const elementsPerCell = 10

// mergeSome takes a portion of what comes into the map of a first build, so that a large one does not hold up the input,
// and reports whether there is more to come.
func (c *Collection[C, V]) mergeSome(slot uint32, v *collected[V]) bool {
	portion := c.g.options.Portion
	if len(v.coming) <= portion {
		return false
	}
	now := make([]uint32, 0, portion)
	for _, elem := range v.coming[:portion] {
		if p, ok := v.pending[elem]; ok && !p.left {
			now = append(now, elem)
		}
	}
	now = append(now, v.stale...) // their names may come again in this portion
	v.out = c.merge(slot, v, now)
	for _, elem := range now {
		delete(v.pending, elem)
	}
	v.coming, v.stale, v.merging = v.coming[portion:], nil, true
	c.g.budget -= portion / elementsPerCell
	return true
}

// naming is a name that an element's outputs had, or one that they have now.
type naming struct {
	name omap.Name
	elem uint32
	at   int32 // place of the output among those of the element; negative for one that it had
}

// merge applies to the map what those of the elements that are pending yield now.
func (c *Collection[C, V]) merge(slot uint32, v *collected[V], elems []uint32) omap.Map[omap.Name, V] {
	out := v.out
	if v.rebuild {
		out, v.disputed = omap.Map[omap.Name, V]{}, nil
	}
	names := c.names(v, elems)
	changes := make([]omap.Change[omap.Name, V], 0, len(names))
	var disputed map[omap.Name][]V
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
		_, open := v.disputed[one.name]
		switch {
		case open || now > 1 || now == 1 && !had && out.Has(one.name):
			if disputed == nil {
				disputed = make(map[omap.Name][]V)
			}
			disputed[one.name] = nil
		case now == 0:
			changes = append(changes, omap.Del[omap.Name, V](one.name))
		default:
			outputs, _ := c.elements.outputs(one.elem)
			changes = append(changes, omap.Put(one.name, outputs[one.at]))
		}
	}
	return out.With(c.decide(slot, v, disputed, changes)...)
}

// names are the names that the elements had and have, in order; of one name those that elements had come first.
func (c *Collection[C, V]) names(v *collected[V], elems []uint32) []naming {
	elems = slices.Clone(elems)
	slices.Sort(elems)
	elems = slices.Compact(elems)
	list := make([]naming, 0, 2*len(elems))
	for _, elem := range elems {
		p, ok := v.pending[elem]
		if !ok {
			continue
		}
		for _, o := range p.old {
			list = append(list, naming{omap.Name(o.OutputName()), elem, -1})
		}
		if p.left {
			continue
		}
		outputs, _ := c.elements.outputs(elem)
		for i, o := range outputs {
			list = append(list, naming{omap.Name(o.OutputName()), elem, int32(i)})
		}
	}
	slices.SortFunc(list, func(a, b naming) int { return cmp.Or(a.name.Compare(b.name), cmp.Compare(a.at, b.at)) })
	return list
}

func (c *Collection[C, V]) drop(slot uint32) {
	c.elements.unlink(slot, c.at(slot).key)
	delete(c.places, slot)
	c.cells.drop(slot)
}

func (c *Collection[C, V]) label() string       { return c.name }
func (c *Collection[C, V]) key(slot uint32) any { return c.at(slot).key }
