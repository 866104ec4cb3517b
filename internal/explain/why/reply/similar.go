package reply

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/spelling"
)

// Similar lists the names that resemble a name, the closest first.
func Similar(name string, lists []func(yield func(string) bool)) []string {
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	first, _, _ := strings.Cut(name, ".")
	bound := max(1, len(first)/4) + 1
	for _, list := range lists {
		list(func(other string) bool {
			head, _, _ := strings.Cut(other, ".")
			far := spelling.Distance(head, first, bound)
			if far < bound && !slices.ContainsFunc(found, func(c candidate) bool { return c.name == other }) {
				found = append(found, candidate{other, far})
			}
			return true
		})
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name)) })
	var names []string
	for _, c := range found[:min(len(found), maxSimilar)] {
		names = append(names, c.name)
	}
	return names
}
