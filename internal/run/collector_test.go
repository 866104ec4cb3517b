package run

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
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

// TestFreeAfter: memory is returned once, after the start and not before, and the function returns only at the end of its context.
func TestFreeAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		started, ended := make(chan struct{}), make(chan error)
		before := collections()
		go func() { ended <- FreeAfter(ctx, started, time.Second) }()
		<-time.After(time.Hour)
		if n := collections() - before; n != 0 {
			t.Errorf("%d collections before the start", n)
		}
		close(started)
		<-time.After(time.Hour)
		if n := collections() - before; n != 1 {
			t.Errorf("%d collections after the start, want 1", n)
		}
		select {
		case err := <-ended:
			t.Errorf("it ended before its context: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// collections returns the number of collections that the program has asked for.
func collections() uint32 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.NumForcedGC
}
