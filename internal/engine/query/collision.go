package query

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// resolveCollisions decides which output has each of the colliding names: the output of the first element, in the order of the
// elements. The result depends on the elements only, not on the order of the changes. Names that still have several candidates
// are kept in v.collisions. The function reads all elements; this cost arises only when a query violates a rule. It appends to
// the changes of the map.
func (c *assembly[V]) resolveCollisions(slot uint32, v *collected[V], collisions map[omap.Name][]V, changes []omap.Change[omap.Name, V]) []omap.Change[omap.Name, V] {
	if len(collisions) == 0 {
		return changes
	}
	for _, elem := range c.elements.linked(slot) {
		outputs, _ := c.elements.outputs(elem)
		for _, o := range outputs {
			if candidates, ok := collisions[omap.Name(o.OutputName())]; ok {
				collisions[omap.Name(o.OutputName())] = append(candidates, o)
			}
		}
	}
	for name, candidates := range collisions {
		delete(v.collisions, name)
		if len(candidates) == 0 {
			changes = append(changes, omap.Del[omap.Name, V](name))
			continue
		}
		changes = append(changes, omap.Put(name, candidates[0]))
		if len(candidates) == 1 {
			continue
		}
		if c.g.options.Strict {
			panic(ruleError(fmt.Sprintf("%s: two elements have an output named %q", c.name, name)))
		}
		if v.collisions == nil {
			v.collisions = make(map[omap.Name]struct{})
		}
		v.collisions[name] = struct{}{}
	}
	return changes
}
