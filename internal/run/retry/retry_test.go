package retry

import (
	"testing"
	"time"
)

func TestPauses(t *testing.T) {
	p := Pauses(time.Second, 10*time.Second)
	for range 2 {
		for _, seconds := range []int{1, 2, 4, 8, 10, 10} {
			about := time.Duration(seconds) * time.Second
			if got := p.NextBackOff(); got < about/2 || got > about*3/2 {
				t.Errorf("a pause is %v, want about %v", got, about)
			}
		}
		p.Reset()
	}
}

// TestPausesDiffer: programs that failed together must not try again together.
func TestPausesDiffer(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[Pauses(time.Second, time.Minute).NextBackOff()] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 first pauses have %d lengths", len(seen))
	}
}
