package run

import "runtime/debug"

// How much a program allocates between two collections, in percent of what is in use: by default, and as we set it. While
// the collector works a change takes some 20 ms longer to reach all of 500 streams; this makes that half as frequent, for
// as much memory again as is in use.
const (
	defaultCollector = 100
	collector        = 200
)

// PaceCollector sets how often the garbage collector runs, unless GOGC in the environment says something other than its
// default. A limit of memory (GOMEMLIMIT) holds in any case.
func PaceCollector() {
	if was := debug.SetGCPercent(collector); was != defaultCollector {
		debug.SetGCPercent(was)
	}
}
