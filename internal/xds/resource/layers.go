package resource

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Layers are the resources of one type that a class sees: a short list of maps. The first map that contains a name wins. A
// Hidden entry says that the name does not exist, whatever lower layers contain. The last layer is the one that most
// classes share. Layers are compared from the end, so that another layer on top costs only its own entries.
type Layers []omap.Map[omap.Name, *Resource]

// Get returns the resource with a name; false if no layer has it or if it is hidden.
func (l Layers) Get(name string) (*Resource, bool) {
	for _, m := range l {
		if r, ok := m.Get(omap.Name(name)); ok {
			return r, !r.hidden
		}
	}
	return nil, false
}

// visible is Get, but returns nil if there is no such resource.
func (l Layers) visible(name string) *Resource {
	if r, ok := l.Get(name); ok {
		return r
	}
	return nil
}

// All yields the visible resources in name order.
func (l Layers) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		if len(l) == 0 {
			return
		}
		upper := l.upper()
		i := 0
		for name, r := range l[len(l)-1].All() {
			for ; i < len(upper) && upper[i].name < string(name); i++ {
				if !upper[i].hidden && !yield(upper[i]) {
					return
				}
			}
			if i < len(upper) && upper[i].name == string(name) {
				continue // An upper layer has the name, and is yielded instead.
			}
			if !r.hidden && !yield(r) {
				return
			}
		}
		for ; i < len(upper); i++ {
			if !upper[i].hidden && !yield(upper[i]) {
				return
			}
		}
	}
}

// upper merges all layers but the last one, hidden entries included.
func (l Layers) upper() []*Resource {
	var all []*Resource
	for _, m := range l[:len(l)-1] {
		if m.Len() == 0 {
			continue
		}
		for _, r := range m.All() {
			all = append(all, r)
		}
	}
	// The sort is stable, so of equal names the first layer's resource comes first, and CompactFunc keeps it.
	slices.SortStableFunc(all, func(a, b *Resource) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b *Resource) bool { return a.name == b.name })
}

// Len is the number of visible resources. It visits all of them.
func (l Layers) Len() int {
	n := 0
	for range l.All() {
		n++
	}
	return n
}

func (l Layers) empty() bool {
	return !slices.ContainsFunc(l, func(m omap.Map[omap.Name, *Resource]) bool { return m.Len() > 0 })
}

// Same reports whether two lists consist of the same maps. It compares pointers, so it is cheap, and it may return false
// for equal content but never true for different content.
func (l Layers) Same(o Layers) bool {
	return slices.EqualFunc(l, o, func(a, b omap.Map[omap.Name, *Resource]) bool { return a.Same(b) })
}

// On returns the layers with another one on top.
func (l Layers) On(top omap.Map[omap.Name, *Resource]) Layers {
	if top.Len() == 0 {
		return l
	}
	return append(Layers{top}, l...)
}

// Change is a name whose visible resource differs. Old is nil if the name was not visible before, and New is nil if it no
// longer is.
type Change struct {
	Name     string
	Old, New *Resource
}

// Diff yields, in name order, the names whose visible resources differ in a and b. It compares layers pairwise from the end
// and skips equal chunks, so it costs only the difference. It leaves out a name that changed in one layer if an upper layer
// has it.
func Diff(a, b Layers) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if a.Same(b) {
			return
		}
		if a.empty() { // This is the case for the first response.
			for r := range b.All() {
				if !yield(Change{Name: r.name, New: r}) {
					return
				}
			}
			return
		}
		for _, name := range touched(a, b) {
			c := Change{Name: name, Old: a.visible(name), New: b.visible(name)}
			if c.Old == c.New || (c.Old != nil && c.New != nil && c.Old.hash == c.New.hash) {
				continue
			}
			if !yield(c) {
				return
			}
		}
	}
}

// touched lists the names that differ in some pair of layers, in order and without duplicates.
func touched(a, b Layers) []string {
	var names []string
	sources := 0
	for i := 1; i <= max(len(a), len(b)); i++ {
		before := len(names)
		for c := range omap.Diff(a.fromEnd(i), b.fromEnd(i)) {
			names = append(names, string(c.Key))
		}
		if len(names) > before {
			sources++
		}
	}
	if sources > 1 {
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names
}

// fromEnd is the i-th layer from the end, an empty one if there are fewer.
func (l Layers) fromEnd(i int) omap.Map[omap.Name, *Resource] {
	if i > len(l) {
		return omap.Map[omap.Name, *Resource]{}
	}
	return l[len(l)-i]
}

// State is everything that the proxies of one class are to have. It is immutable, and streams hold pointers to it.
type State struct {
	// Revision is the revision of the commit from which the state was computed.
	Revision store.Revision
	// Published is when the state was handed to the streams. It is used to measure convergence; the zero time means that it
	// is not measured. It is not part of the content.
	Published time.Time
	Types     [Types]Layers
	// First are the names of the clusters that a client with hosts on demand has before it asks for a host; empty for other clients, which have all.
	First omap.Map[omap.Name, omap.Unit]
}

// Get returns a resource by type and name. A nil state has none.
func (s *State) Get(t Type, name string) (*Resource, bool) {
	if s == nil {
		return nil, false
	}
	return s.Types[t].Get(name)
}

// Layers are the state's layers of one type. A nil state has none.
func (s *State) Layers(t Type) Layers {
	if s == nil {
		return nil
	}
	return s.Types[t]
}
