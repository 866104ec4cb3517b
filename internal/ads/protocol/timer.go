package protocol

import "time"

// Patience is how long the core waits for an acknowledgement. After that it sends newer state of the type, and listeners
// and routes may refer to clusters that are not acknowledged. Envoy withholds the acknowledgement of clusters while any
// cluster warms, and for ever if a cluster waits for something that never comes (envoy,
// ClusterManagerImpl::updateClusterCounts). A healthy cluster is warm after one exchange of assignments and perhaps one
// of secrets, for which 400 ms suffice. An edit that needs a new cluster and then a route to it waits at most twice and
// so takes effect within a second.
const Patience = 400 * time.Millisecond

// timer decides when an acknowledgement is overdue. All times are Unix nanoseconds. At most one Wait action runs at a
// time.
type timer struct {
	// now is the time of the last event.
	now int64
	// fired is when the last Wait ended; 0 before the first. An acknowledgement becomes overdue only when a Wait ends, so
	// that other events do not depend on the time.
	fired int64
	// wake is the earliest time at which something that is held back may be sent without an acknowledgement; 0 if
	// nothing is held back. Every search for the next message recomputes it.
	wake int64
	// running is set while a Wait runs.
	running bool
}

// overdue reports whether something that began at a time has lasted for Patience.
func (t *timer) overdue(since int64) bool { return t.fired-since >= int64(Patience) }

// wakeAfterPatience notes that something is held back until Patience has passed since a time.
func (t *timer) wakeAfterPatience(since int64) {
	if at := since + int64(Patience); t.wake == 0 || at < t.wake {
		t.wake = at
	}
}

// start emits a Wait if something is held back and no Wait runs.
func (t *timer) start(out []Action) []Action {
	if t.wake == 0 || t.running {
		return out
	}
	t.running = true
	// A Wait cannot be cut short, and the next message to be held back may be due before the present one. It is never due before Patience has passed.
	return append(out, Action{Kind: Wait, For: min(Patience, time.Duration(t.wake-t.now))})
}
