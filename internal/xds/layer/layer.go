// Package layer is what the translators share: how the results for one host become entries of layers, for all, for a scope
// and for single clients.
//
// It owns the rule of what an overlay holds: what differs from the base, and an entry that hides each thing the base has
// and the overlay does not; and that what is made of a host is encoded in one place, after it is translated. It starts no
// goroutines and knows nothing of what the results are.
package layer

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/query"
)

// Equal compares results by name and content: what hides something has the same content whatever its name.
func Equal[V query.Output](a, b []V) bool {
	return slices.EqualFunc(a, b, func(a, b V) bool {
		return a.ContentHash() == b.ContentHash() && a.OutputName() == b.OutputName()
	})
}

// Cover adds to list an entry for everything base has and list has not.
func Cover[V query.Output](list, base []V, hide func(name string) V) []V {
	out := slices.Clip(list)
	for _, b := range base {
		name := b.OutputName()
		if !slices.ContainsFunc(list, func(v V) bool { return v.OutputName() == name }) {
			out = append(out, hide(name))
		}
	}
	return out
}
