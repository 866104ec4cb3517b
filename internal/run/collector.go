package run

import (
	"context"
	"runtime/debug"
	"time"
)

// Pace is a value of GOGC: the growth of the heap, in percent of the live heap, after which the garbage collector runs.
type Pace int

const (
	// usual is Go's default.
	usual Pace = 100
	// Rarely is for a control plane: during a collection a change takes some 20 ms longer to reach all of 500 streams. It halves the number
	// of collections, and needs additional memory in the size of the heap in use.
	Rarely Pace = 200
	// Often is for an agent, which has little to do and lies beside every proxy of the mesh: memory counts more than time.
	Often Pace = 50
)

// PaceCollector sets how often the garbage collector runs, unless GOGC is set to another value than its default. A memory limit
// (GOMEMLIMIT) remains effective.
func PaceCollector(p Pace) {
	if was := debug.SetGCPercent(int(p)); was != int(usual) {
		debug.SetGCPercent(was)
	}
}

// FreeAfter returns unused memory to the operating system once, some time after the program has started, and then waits for the end of ctx.
// At its start a program holds each message of its first configuration for a moment. The collector would keep that memory for later, which
// is a tenth of what an agent needs for 1,000 services.
func FreeAfter(ctx context.Context, started <-chan struct{}, settled time.Duration) error {
	select {
	case <-started:
	case <-ctx.Done():
		return nil
	}
	timer := time.NewTimer(settled)
	defer timer.Stop()
	select {
	case <-timer.C:
		debug.FreeOSMemory()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}
