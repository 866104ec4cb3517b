package query

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// elementHints remembers, by collection slot, which element had the output of a name when Element last searched for one. Each
// hint is checked before it is used, so a change of the collection need not update them.
type elementHints map[uint32]map[omap.Name]uint32

func (c *collection[C, V]) Element(k C, name omap.Name) (ID, bool) {
	cell, slot, ok := c.find(k)
	if !ok || !cell.val.out.Has(name) {
		return 0, false
	}
	return c.element(slot, name)
}

func (c *assembly[V]) element(slot uint32, name omap.Name) (ID, bool) {
	if elem, ok := c.hints[slot][name]; ok && c.yields(elem, slot, name) {
		return c.elementCells.id(elem), true
	}
	found := make(map[omap.Name]uint32, c.values.At(slot).out.Len())
	for _, elem := range c.elements.linked(slot) {
		outputs, _ := c.elements.outputs(elem)
		for _, o := range outputs {
			found[omap.Name(o.OutputName())] = elem
		}
	}
	if c.hints == nil {
		c.hints = elementHints{}
	}
	c.hints[slot] = found
	elem, ok := found[name]
	return c.elementCells.id(elem), ok
}

// yields reports whether the slot holds an element of the collection that has the output.
func (c *assembly[V]) yields(elem, slot uint32, name omap.Name) bool {
	if n := c.elementCells.nodes.Lookup(elem); n == nil || !n.users.has(c.id(slot)) {
		return false
	}
	outputs, _ := c.elements.outputs(elem)
	return slices.ContainsFunc(outputs, func(v V) bool { return omap.Name(v.OutputName()) == name })
}

// Rows returns the keys of the present rows and groups that a cell depends on, directly or through other cells, each once and in
// the order in which they were read. It is for the owner of the graph, between commits.
func (g *Graph) Rows(id ID) []any {
	var keys []any
	seen := map[ID]struct{}{}
	var walk func(id ID)
	walk = func(id ID) {
		if _, ok := seen[id]; ok {
			return
		}
		seen[id] = struct{}{}
		if id.Leaf() {
			if leaf := g.db.Describe(id); leaf.Present {
				keys = append(keys, leaf.Key)
			}
			return
		}
		for _, d := range g.nodeOf(id).reads {
			walk(d)
		}
	}
	walk(id)
	return keys
}
