// Package life supervises one Envoy: it starts it, waits until it is ready, starts it again after a crash, and ends it
// without cutting off requests.
//
// What happens when is decided by a Machine, which is pure: events go in, actions come out, and the whole of it is one
// table of states and inputs (see table.go). A Supervisor is the thin shell around it: it starts processes, asks
// Envoy's admin interface, keeps the one timer, and turns what comes of that into events.
//
// Invariants: there is at most one process; nothing is started once the end has begun; a process that was started is
// gone when Run returns; after the first request to end, requests under way have the drain time to finish, after the
// second none.
//
// Goroutines: Run's own, and one per question to Envoy; all have ended when Run returns. The package knows no flags, no
// Envoy protos and no HTTP: it must not import anything of this project.
package life

import (
	"errors"
	"time"
)

// Policy is how long things may take and how often they are tried.
type Policy struct {
	// Probe is the time between two looks whether Envoy is ready.
	Probe time.Duration
	// FirstBackoff is the time before the first restart after a crash; it doubles with each up to LongestBackoff.
	FirstBackoff, LongestBackoff time.Duration
	// Restarts is how many crashes in a row are made good. One more ends the supervisor with an error.
	Restarts int
	// Steady is how long Envoy must have been ready for the crashes before not to count any more.
	Steady time.Duration
	// Drain is how long requests under way may take after the request to end.
	Drain time.Duration
	// UntilIdle waits until no connection is left instead: at least MinDrain, then looking every Look.
	UntilIdle      bool
	MinDrain, Look time.Duration
	// Blind is how often in a row the connections may be counted in vain before Envoy counts as idle.
	Blind int
	// Kill is how long Envoy may take to end once told to.
	Kill time.Duration
}

// Default is a policy with Istio's times where Istio has them.
func Default() Policy {
	return Policy{
		Probe:        50 * time.Millisecond,
		FirstBackoff: 200 * time.Millisecond, LongestBackoff: 5 * time.Second, Restarts: 10, Steady: time.Minute,
		Drain: 5 * time.Second, MinDrain: 5 * time.Second, Look: time.Second, Blind: 5,
		Kill: 5 * time.Second,
	}
}

// How a life ends other than well.
var (
	// ErrCrashed says that Envoy ended by itself more often than it is started again.
	ErrCrashed = errors.New("Envoy crashed")
	// ErrCutShort says that Envoy was ended without waiting for requests under way, as somebody asked for.
	ErrCutShort = errors.New("Envoy was ended at once, as told a second time; requests under way were cut off")
)
