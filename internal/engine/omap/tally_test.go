package omap

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTally compares a tally with plain maps: groups come in the order of their first change, and members in key order, each
// with the sum of its changes unless that is zero.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tally Tally[int, Name]
		model := map[int]map[Name]int{}
		var order []int
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			g := rapid.IntRange(0, 3*fewGroups).Draw(t, "group")
			m := rapid.SampledFrom([]Name{"a", "b", "c"}).Draw(t, "member")
			by := rapid.IntRange(-1, 1).Draw(t, "by")
			tally.Add(g, m, by)
			if model[g] == nil {
				model[g] = map[Name]int{}
				order = append(order, g)
			}
			model[g][m] += by
		}
		if tally.Empty() != (len(order) == 0) {
			t.Fatalf("empty: %v, with %d groups", tally.Empty(), len(order))
		}
		var got, want []string
		for g, counts := range tally.All() {
			for _, c := range counts {
				got = append(got, fmt.Sprint(g, c.Member, c.By))
			}
		}
		for _, g := range order {
			for _, m := range []Name{"a", "b", "c"} {
				if by := model[g][m]; by != 0 {
					want = append(want, fmt.Sprint(g, m, by))
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
