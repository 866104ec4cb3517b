package run

import "runtime/debug"

// Values of GOGC: Go's default, and ours. During a garbage collection a change takes some 20 ms longer to reach all of 500
// streams. Doubling GOGC halves the frequency of collections, and needs additional memory in the size of the live heap.
const (
	defaultCollector = 100
	collector        = 200
)

// PaceCollector sets how often the garbage collector runs, unless GOGC is set to another value than its default. A memory limit
// (GOMEMLIMIT) remains effective.
func PaceCollector() {
	if was := debug.SetGCPercent(collector); was != defaultCollector {
		debug.SetGCPercent(was)
	}
}
