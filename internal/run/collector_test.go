package run

import (
	"runtime/debug"
	"testing"
)

// TestPaceCollector: GOGC of the environment overrides the pace.
func TestPaceCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(int(usual)))
	for _, pace := range []Pace{Rarely, Often} {
		for said, want := range map[int]int{int(usual): int(pace), 70: 70, -1: -1} {
			debug.SetGCPercent(said)
			PaceCollector(pace)
			if got := debug.SetGCPercent(said); got != want {
				t.Errorf("after GOGC=%d it is %d, want %d", said, got, want)
			}
		}
	}
}
