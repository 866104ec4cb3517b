package connected

import "slices"

// Warming lists resources that a proxy has received and does not use yet, and its draining connections, as its agent reports. Proxies
// that use everything and drain nothing have no row.
type Warming struct {
	// Resources are in order.
	Resources []ResourceKey
	// More are the types that have more such resources than Resources lists.
	More []uint8
	// DrainingChains is the number of draining filter chains, of listeners that were changed, and DrainingConnections the number of
	// connections that may continue on them.
	DrainingChains, DrainingConnections uint32
}

func (w Warming) equal(o Warming) bool {
	return slices.Equal(w.Resources, o.Resources) && slices.Equal(w.More, o.More) &&
		w.DrainingChains == o.DrainingChains && w.DrainingConnections == o.DrainingConnections
}

// Of returns the names of the resources of a type, and whether there are others.
func (w Warming) Of(typ uint8) (names []string, more bool) {
	for _, r := range w.Resources {
		if r.Type == typ {
			names = append(names, r.Name)
		}
	}
	return names, slices.Contains(w.More, typ)
}
