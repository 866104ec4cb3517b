package resource

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Layers is what a class sees of one type: a short list of maps, the first one that has a name wins. An entry that is
// Hidden says that the name does not exist, whatever lower layers hold. The last layer is the one shared most widely;
// layers are compared from the end, so that adding one on top costs only what it holds.
type Layers []omap.Map[omap.Name, *Resource]

// Get looks a name up.
func (l Layers) Get(name string) (*Resource, bool) {
	for _, m := range l {
		if r, ok := m.Get(omap.Name(name)); ok {
			return r, !r.hidden
		}
	}
	return nil, false
}

// visible is Get with nil for absence.
func (l Layers) visible(name string) *Resource {
	if r, ok := l.Get(name); ok {
		return r
	}
	return nil
}

// All yields what is visible, in name order.
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
				continue // shadowed; the upper one comes in its turn
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
	// Stable: of equal names the one of the first layer stays first, and Compact keeps it.
	slices.SortStableFunc(all, func(a, b *Resource) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b *Resource) bool { return a.name == b.name })
}

// Len counts what is visible. It looks at everything.
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

// Same reports whether two lists are the same maps, by pointer: no false positives, and cheap.
func (l Layers) Same(o Layers) bool {
	return slices.EqualFunc(l, o, func(a, b omap.Map[omap.Name, *Resource]) bool { return a.Same(b) })
}

// On puts a layer on top.
func (l Layers) On(top omap.Map[omap.Name, *Resource]) Layers {
	if top.Len() == 0 {
		return l
	}
	return append(Layers{top}, l...)
}

// Change is one name that looks different. Old is nil if the name was not visible, New is nil if it no longer is.
type Change struct {
	Name     string
	Old, New *Resource
}

// Diff yields, in name order, the names that look different in a and b. Its cost is that of the difference: layers
// are compared pairwise from the end, equal chunks are skipped, and a name that changed in one layer but is shadowed
// by another is left out.
func Diff(a, b Layers) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if a.Same(b) {
			return
		}
		if a.empty() { // a first answer: nothing is to be compared
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

// touched lists, in order and once each, the names with a difference in some pair of layers.
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

// State is all that the proxies of one class are to have. It is immutable; streams hold pointers to it.
type State struct {
	Revision store.Revision
	// Published is when the state was handed to the streams; the zero time if nobody wants to know how long
	// convergence takes. It is no part of the content.
	Published time.Time
	Types     [Types]Layers
}

// Get looks a resource up.
func (s *State) Get(t Type, name string) (*Resource, bool) {
	if s == nil {
		return nil, false
	}
	return s.Types[t].Get(name)
}

// Layers are the state's layers of one type; none for a nil state, which is an empty one.
func (s *State) Layers(t Type) Layers {
	if s == nil {
		return nil
	}
	return s.Types[t]
}
