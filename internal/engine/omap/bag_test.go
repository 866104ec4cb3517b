package omap

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBag compares a bag with a map of counts: a member is in the bag while its multiplicity is positive.
func TestBag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var bag Bag[Name]
		counts := map[Name]int{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			delta := map[Name]int{}
			before := bag.Members().Hash()
			for _, m := range rapid.SliceOfN(rapid.SampledFrom([]Name{"a", "b", "c"}), 1, 4).Draw(t, "members") {
				by := rapid.IntRange(-counts[m]-delta[m], 2).Draw(t, "by")
				delta[m] += by
			}
			var list []Count[Name]
			for m, by := range delta {
				list = append(list, Count[Name]{m, by})
			}
			changed := bag.Apply(list)
			for m, by := range delta {
				counts[m] += by
			}
			for m, n := range counts {
				if bag.Members().Has(m) != (n > 0) {
					t.Fatalf("%s with multiplicity %d: member %v", m, n, bag.Members().Has(m))
				}
			}
			if changed != (bag.Members().Hash() != before) {
				t.Fatalf("Apply(%v) reported changed=%v", delta, changed)
			}
		}
	})
}
