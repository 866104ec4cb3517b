package explain

import (
	"cmp"
	"slices"
	"strings"
)

// similar lists the names that may have been meant, the likeliest first.
func similar(name string, lists []func(yield func(string) bool)) []string {
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	first, _, _ := strings.Cut(name, ".")
	for _, list := range lists {
		list(func(other string) bool {
			head, _, _ := strings.Cut(other, ".")
			far := distance(head, first)
			if far <= max(1, len(first)/4) && !slices.ContainsFunc(found, func(c candidate) bool { return c.name == other }) {
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

// distance is how many letters have to be added, dropped or changed to make one word the other, as far as it matters: a
// word that is much longer is simply far.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 8 || d < -8 {
		return 8
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
