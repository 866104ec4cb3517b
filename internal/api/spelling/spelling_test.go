package spelling

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b        string
		bound, want int
	}{
		{"", "", 3, 0}, {"route", "route", 3, 0}, {"route", "routes", 3, 1}, {"rout", "route", 3, 1}, {"rouse", "route", 3, 1},
		{"kitten", "sitting", 9, 3}, {"kitten", "sitting", 3, 3}, {"kitten", "sitting", 2, 2}, {"abc", "cab", 9, 2}, {"", "abc", 9, 3}, {"", "abc", 3, 3},
		{strings.Repeat("a", 64), strings.Repeat("a", 63), 9, 1}, {strings.Repeat("a", 65), strings.Repeat("a", 65), 9, 9},
	} {
		for _, got := range []int{Distance(c.a, c.b, c.bound), Distance(c.b, c.a, c.bound)} {
			if got != c.want {
				t.Errorf("%q and %q within %d: %d, want %d", c.a, c.b, c.bound, got, c.want)
			}
		}
	}
}
