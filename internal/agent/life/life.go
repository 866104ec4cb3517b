// Package life supervises one Envoy: it starts Envoy, waits until it is ready, restarts it after a crash, replaces it when its
// configuration changes, and stops it after running requests have had time to complete.
//
// Machine is a pure state machine that decides what to do: it gets events and returns actions. The whole machine is one table
// of states and inputs (see table.go). Supervisor executes the actions: it starts processes, queries Envoy's admin interface,
// keeps the timer, and creates events from the results.
//
// A process is replaced by a hot restart: a second process takes the listeners over from the first one, which completes its requests and
// exits. If the second one fails before it is ready, the first one continues to serve. A configuration with which Envoy fails too often is
// replaced by the last good one, until there is another one.
//
// Invariants: there is one process at most, or there are two during a hot restart; the next hot restart waits until there is one.
// Nothing is started once the end was requested. A process that was started has exited when Run returns. After the first request to
// end, running requests have the drain time to complete; after the second request, Envoy is killed.
//
// Goroutines: the one that runs Run, and one per query to Envoy. All of them have ended when Run returns.
package life

import (
	"errors"
	"time"
)

// Policy holds the time limits and retry limits of a supervisor.
type Policy struct {
	// Probe is the interval between checks whether Envoy is ready.
	Probe time.Duration
	// Watch is the interval between checks whether an Envoy that was ready still answers.
	Watch time.Duration
	// FirstBackoff is the time before the first restart after a crash. It doubles with each crash, up to LongestBackoff.
	FirstBackoff, LongestBackoff time.Duration
	// Restarts is how many crashes in a row lead to a restart. After one more, the supervisor returns an error.
	Restarts int
	// StableAfter is how long Envoy must have been ready for earlier crashes to be forgotten.
	StableAfter time.Duration
	// Drain is how long running requests may take after the request to end.
	Drain time.Duration
	// UntilIdle drains until no connection is left, instead of for the time Drain: at least MinDrain, then with a check at
	// every Recount.
	UntilIdle         bool
	MinDrain, Recount time.Duration
	// CountFailures is how many counts of connections in a row may fail before Envoy is regarded as idle.
	CountFailures int
	// Kill is how long Envoy may take to exit after it was asked to, before it is killed.
	Kill time.Duration
	// Replace is how long a process that replaces another one may take to be ready, before it is killed.
	Replace time.Duration
	// Retire is how long a process that was replaced may take to exit, before it is killed.
	Retire time.Duration
	// Tries is after how many failures in a row the last good configuration replaces a new one.
	Tries int
	// LastGood is the revision of a configuration with which Envoy was ready earlier; 0 if there is none.
	LastGood int
}

// Default returns a policy with Istio's values where Istio has them.
func Default() Policy {
	return Policy{
		Probe: 50 * time.Millisecond, Watch: 10 * time.Second,
		FirstBackoff: 200 * time.Millisecond, LongestBackoff: 5 * time.Second, Restarts: 10, StableAfter: time.Minute,
		Drain: 5 * time.Second, MinDrain: 5 * time.Second, Recount: time.Second, CountFailures: 5,
		Kill: 5 * time.Second, Replace: 30 * time.Second, Retire: 65 * time.Second, Tries: 3,
	}
}

// Errors of Run.
var (
	// ErrCrashed reports that Envoy crashed more often than it is restarted.
	ErrCrashed = errors.New("Envoy crashed")
	// ErrAborted reports that Envoy was killed, on request, while requests may have been running.
	ErrAborted = errors.New("Envoy was stopped immediately at a second request to stop; running requests were aborted")

	// errEndedEarly is the failure of a process that exited with success before it was ready.
	errEndedEarly = errors.New("it ended before it was ready")
)
