package run

import (
	"runtime/debug"
	"testing"
)

// TestPaceCollector: GOGC of the environment overrides the pace.
func TestPaceCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(defaultCollector))
	for said, want := range map[int]int{defaultCollector: collector, 50: 50, -1: -1} {
		debug.SetGCPercent(said)
		PaceCollector()
		if got := debug.SetGCPercent(said); got != want {
			t.Errorf("after GOGC=%d it is %d, want %d", said, got, want)
		}
	}
}
