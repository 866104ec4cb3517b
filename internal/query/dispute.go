package query

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/omap"
)

// decide gives each disputed name to the first element, in the order of the elements, that has an output of that name, and
// keeps in mind the names that several have. The winner depends on the elements only, not on how they came. It looks at all
// elements, which only a broken rule of the kernel costs. It adds to the changes of the map.
func (c *Collection[C, V]) decide(slot uint32, v *collected[V], disputed map[omap.Name][]V, changes []omap.Change[omap.Name, V]) []omap.Change[omap.Name, V] {
	if len(disputed) == 0 {
		return changes
	}
	for _, elem := range c.elements.linked(slot, c.at(slot).key) {
		outputs, _ := c.elements.outputs(elem)
		for _, o := range outputs {
			if claims, ok := disputed[omap.Name(o.OutputName())]; ok {
				disputed[omap.Name(o.OutputName())] = append(claims, o)
			}
		}
	}
	for name, claims := range disputed {
		delete(v.disputed, name)
		if len(claims) == 0 {
			changes = append(changes, omap.Del[omap.Name, V](name))
			continue
		}
		changes = append(changes, omap.Put(name, claims[0]))
		if len(claims) == 1 {
			continue
		}
		if c.g.options.Strict {
			panic(ruleError(fmt.Sprintf("%s: two elements have an output named %q", c.name, name)))
		}
		if v.disputed == nil {
			v.disputed = make(map[omap.Name]struct{})
		}
		v.disputed[name] = struct{}{}
	}
	return changes
}
