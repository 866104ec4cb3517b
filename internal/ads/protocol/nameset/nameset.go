// Package nameset has the operations on sets of names. Sets are immutable. The package starts no goroutines.
package nameset

import "github.com/pilotmesh/pilot/internal/engine/omap"

// Set is a set of names.
type Set = omap.Map[omap.Name, omap.Unit]

// With adds a name.
func With(s Set, n omap.Name) Set { return omap.With(s, omap.Put(n, omap.Unit{})) }

// Without removes a name.
func Without(s Set, n omap.Name) Set { return omap.With(s, omap.Del[omap.Name, omap.Unit](n)) }

// Union is all names of two sets.
func Union(a, b Set) Set {
	if a.Len() == 0 {
		return b
	}
	var puts []omap.Change[omap.Name, omap.Unit]
	for n := range b.All() {
		puts = append(puts, omap.Put(n, omap.Unit{}))
	}
	return omap.With(a, puts...)
}

// Subtract is the names of a that are not in b.
func Subtract(a, b Set) Set {
	if a.Len() == 0 || b.Len() == 0 {
		return a
	}
	var dels []omap.Change[omap.Name, omap.Unit]
	for n := range b.All() {
		dels = append(dels, omap.Del[omap.Name, omap.Unit](n))
	}
	return omap.With(a, dels...)
}

// Of is a set of names.
func Of(list []string) Set {
	puts := make([]omap.Change[omap.Name, omap.Unit], 0, len(list))
	for _, n := range list {
		puts = append(puts, omap.Put(omap.Name(n), omap.Unit{}))
	}
	return omap.With(Set{}, puts...)
}

// Partition splits a set in two.
func Partition(set Set, first func(omap.Name) bool) (yes, no Set) {
	var in, out []omap.Change[omap.Name, omap.Unit]
	for n := range set.All() {
		if first(n) {
			in = append(in, omap.Put(n, omap.Unit{}))
		} else {
			out = append(out, omap.Put(n, omap.Unit{}))
		}
	}
	return omap.With(Set{}, in...), omap.With(Set{}, out...)
}
