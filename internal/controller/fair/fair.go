// Package fair divides bounded resources between namespaces, so that no namespace can use up the share of another.
//
// Everything here is a pure function.
package fair

import (
	"cmp"
	"slices"
)

// Want is something that a namespace wants to have.
type Want[K comparable] struct {
	Namespace string
	Thing     K
}

// Bounds say how much is granted.
type Bounds struct {
	// Total is the largest number of things granted to all namespaces together.
	Total int
	// Share is how many a namespace gets before another one gets more than its share.
	Share int
}

// Grant returns which things are granted. The share of each namespace goes before wishes of others beyond their shares. Among these, and among
// the rest, former grants go first, and then each namespace gets as much as the others. wants are in the order in which a
// namespace gets them. Something that several namespaces want counts once.
func Grant[K comparable](wants []Want[K], b Bounds, had func(K) bool) map[K]bool {
	type place struct {
		Want[K]
		had   bool
		index int
	}
	places, next, seen := make([]place, 0, len(wants)), map[string]int{}, make(map[Want[K]]bool, len(wants))
	for _, old := range []bool{true, false} {
		for _, w := range wants {
			if seen[w] || had(w.Thing) != old {
				continue
			}
			seen[w] = true
			places = append(places, place{w, old, next[w.Namespace]})
			next[w.Namespace]++
		}
	}
	class := func(p place) int {
		switch {
		case p.index < b.Share && p.had:
			return 0
		case p.index < b.Share:
			return 1
		case p.had:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(places, func(x, y place) int {
		return cmp.Or(cmp.Compare(class(x), class(y)), cmp.Compare(x.index, y.index))
	})
	granted := make(map[K]bool, min(len(places), b.Total))
	for _, p := range places {
		if len(granted) == b.Total {
			break
		}
		granted[p.Thing] = true
	}
	return granted
}

// Running counts the running work of each namespace. The zero value is ready to use.
type Running struct{ of map[string]int }

// Start counts one more for a namespace; false if that must wait. free is how many places are free. A namespace may have as many places
// as it leaves free, so it never takes the last one while it has another, and several that take all they may leave one for the next.
func (r *Running) Start(namespace string, free int) bool {
	if r.of[namespace] >= free {
		return false
	}
	if r.of == nil {
		r.of = map[string]int{}
	}
	r.of[namespace]++
	return true
}

// End counts one less for a namespace.
func (r *Running) End(namespace string) {
	if r.of[namespace] > 1 {
		r.of[namespace]--
		return
	}
	delete(r.of, namespace)
}

// Of is how much is running for a namespace.
func (r *Running) Of(namespace string) int { return r.of[namespace] }
