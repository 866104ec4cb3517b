// Package layer turns what a translator makes of one host into entries of layers: of the base view, of a set, and of
// single clients.
//
// It owns two rules. An overlay holds only what differs from the base view, and an entry that hides each resource that
// the base view has and the overlay has not. And a translator encodes its messages in one place. The package does not
// know what the results are, and starts no goroutines.
package layer

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/query"
)

// Equal compares results by name and content. All results that hide something have equal content, whatever their names.
func Equal[V query.Output](a, b []V) bool {
	return slices.EqualFunc(a, b, func(a, b V) bool {
		return a.ContentHash() == b.ContentHash() && a.OutputName() == b.OutputName()
	})
}

// HideMissing appends to list an entry that hides each result of base whose name list does not have.
func HideMissing[V query.Output](list, base []V, hide func(name string) V) []V {
	out := slices.Clip(list)
	for _, b := range base {
		name := b.OutputName()
		if !slices.ContainsFunc(list, func(v V) bool { return v.OutputName() == name }) {
			out = append(out, hide(name))
		}
	}
	return out
}
