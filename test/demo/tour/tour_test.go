package tour

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		n, all, percent int
		want            bool
	}{
		{400, 400, 100, true}, {396, 400, 100, true}, {395, 400, 100, false}, {0, 400, 0, true}, {5, 400, 0, false},
		{200, 400, 50, true}, {250, 400, 50, true}, {256, 400, 50, false}, {40, 400, 10, true}, {0, 400, 10, false}, {0, 0, 0, false},
	} {
		if got := within(c.n, c.all, c.percent); got != c.want {
			t.Errorf("%d of %d for %d%%: %v", c.n, c.all, c.percent, got)
		}
	}
}

// TestScreen: a row is as wide as its heading says, and only terminals see rows that change.
func TestScreen(t *testing.T) {
	tally := testbed.Tally{Answers: map[string]int{"v1": 30, "v3": 10}, Failures: 2}
	var plain, fancy bytes.Buffer
	s := &Screen{w: &plain}
	row := s.row("75/0/25", tally, "8.0 ms")
	if bar := strings.Repeat("█", 18) + strings.Repeat("░", 6); !strings.Contains(row, bar+"     30     0    10       2  8.0 ms") {
		t.Errorf("got %q", row)
	}
	s.live(row)
	if plain.Len() > 0 {
		t.Errorf("not a terminal, and still %q", plain.String())
	}
	s = &Screen{w: &fancy, terminal: true}
	s.live("one")
	s.live("two")
	s.Line("three")
	if got, want := fancy.String(), "one\r\x1b[2Ktwo\r\x1b[2Kthree\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
