package life

import (
	"fmt"
	"slices"
	"time"
)

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events.
const (
	// Begin is the first event.
	Begin Kind = iota
	// Probed reports that Envoy is ready, or in Err why it is not.
	Probed
	// Counted reports that Envoy has N connections, or in Err why the number is unknown.
	Counted
	// Ended reports that Process has exited, with Err nil if its exit code was 0. Permanent reports that another start would fail
	// too.
	Ended
	// TimerFired reports that the timer has fired.
	TimerFired
	// Leave asks to drain clients while Envoy continues to serve.
	Leave
	// End asks to stop Envoy. A second End asks to stop it immediately.
	End
	// Changed reports that there is a new configuration, of a higher Revision than all others.
	Changed
)

// Event is an input of a Machine.
type Event struct {
	Kind      Kind
	Process   int // the number of the process, for Probed, Counted and Ended
	Revision  int // for Changed
	N         int
	Err       error
	Permanent bool
}

// Do is the operation of an Action.
type Do uint8

// The operations.
const (
	// Start starts Process with the configuration of Revision. If Parent is not 0, the new process takes the listeners over from
	// that one.
	Start Do = iota
	// Probe checks whether Process is ready.
	Probe
	// Warn makes Envoy ask clients to use other endpoints, and continue to listen.
	Warn
	// Drain makes Envoy ask clients to use other endpoints, and stop listening at the end of its drain time.
	Drain
	// Count counts the connections.
	Count
	// Terminate asks Process to exit.
	Terminate
	// Kill kills Process.
	Kill
	// Set sets the timer to After.
	Set
)

// String returns the name of the operation.
func (d Do) String() string {
	return [...]string{"start", "probe", "warn", "drain", "count", "terminate", "kill", "set"}[d]
}

// Action is something that the supervisor has to do.
type Action struct {
	Do                        Do
	Process, Parent, Revision int
	After                     time.Duration
}

// Machine is the state machine of one Envoy. It is pure: it gets the time as an argument and performs no action itself.
type Machine struct {
	policy        Policy
	state         State
	started       int       // number of the last process that was started; the first is 1
	process       int       // the present process: the newer one if there are two
	older         int       // the older one of two processes; 0 if there is none
	began         time.Time // when the present process was started
	ready         time.Time // when the present process became ready
	crashes       int       // crashes in a row
	countFailures int       // failed counts of connections in a row
	last          Event     // the last Ended event
	result        error

	revisions
}

// revisions are the configurations that the machine chooses from, by their numbers. Zero means none.
type revisions struct {
	wanted   int // the newest one
	revision int // the configuration of the present process
	serving  int // the configuration of the older process
	good     int // the last one with which Envoy was ready before there was a newer one
	refused  int // the newest one with which Envoy failed too often
	tries    int // failures in a row with the present one
	why      error
}

// newMachine returns a machine in the state Idle. The first configuration is revision 1.
func newMachine(p Policy) *Machine {
	return &Machine{policy: p, revisions: revisions{wanted: firstRevision, good: p.LastGood}}
}

// firstRevision is the configuration that the machine begins with.
const firstRevision = 1

// State returns the present state.
func (m *Machine) State() State { return m.state }

// Result returns, in the state Stopped, nil if Envoy ended as intended.
func (m *Machine) Result() error { return m.result }

// Serving returns the configuration of the process that serves.
func (m *Machine) Serving() int {
	if m.state == Replacing {
		return m.serving
	}
	return m.revision
}

// Refused returns the newest configuration if Envoy has failed with it too often, and how it failed; 0 if it has not. Envoy runs with
// the last good one then.
func (m *Machine) Refused() (revision int, why error) {
	if m.refused != m.wanted {
		return 0, nil
	}
	return m.refused, m.why
}

// Step processes an event and returns the actions in order. It returns false if the event has no effect in the present state.
// Otherwise the timer runs only if the actions contain Set.
func (m *Machine) Step(now time.Time, e Event) ([]Action, bool) {
	upon, ok := m.classify(now, e)
	if !ok {
		return nil, false
	}
	actions, moved := m.move(now, upon)
	if moved && m.state == Ready && m.wanted != m.revision && m.wanted != m.refused {
		// A configuration came before this state was reached. Its transition decides about the timer.
		more, _ := m.move(now, change)
		actions = append(slices.DeleteFunc(actions, func(a Action) bool { return a.Do == Set }), more...)
	}
	return actions, moved
}

// move looks an input up in the table and makes the transition.
func (m *Machine) move(now time.Time, upon input) ([]Action, bool) {
	for _, t := range table {
		if t.in == m.state && t.upon == upon {
			return m.apply(now, t), true
		}
	}
	return nil, false
}

// classify maps an event to an input and updates the counters. It returns false for events of an earlier process.
func (m *Machine) classify(now time.Time, e Event) (input, bool) {
	switch e.Kind {
	case Begin:
		return begin, true
	case Probed:
		if e.Err != nil && m.state == Replacing && now.Sub(m.began) >= m.policy.Replace {
			return late, e.Process == m.process
		}
		return choose(e.Err == nil, up, down), e.Process == m.process
	case Counted:
		m.countFailures = choose(e.Err == nil, 0, m.countFailures+1)
		idle := e.Err == nil && e.N == 0 || m.countFailures > m.policy.CountFailures
		return choose(idle, drained, busy), e.Process == m.process
	case Ended:
		return m.ended(now, e)
	case TimerFired:
		// A drain with a fixed time is complete when the timer fires.
		return choose(m.state == Draining && !m.policy.UntilIdle, drained, alarm), true
	case Leave:
		return leave, true
	case Changed:
		m.wanted, m.tries = e.Revision, 0
		return change, true
	case End:
	}
	return end, true
}

// ended classifies the end of a process. If the present one of two processes has ended, the other one becomes the present one.
func (m *Machine) ended(now time.Time, e Event) (input, bool) {
	switch {
	case m.older != 0 && e.Process == m.older:
		m.older, m.serving = 0, 0
		return gone, true
	case e.Process != m.process:
		return 0, false
	case m.state == Replacing:
		return m.replacementFailed(e), true
	case m.older != 0 && (m.state == Draining || m.state == Exiting):
		m.backToOlder()
		return gone, true
	}
	m.last = e
	if e.Err == nil {
		return exited, true
	}
	if m.servesClients() && now.Sub(m.ready) >= m.policy.StableAfter {
		m.crashes, m.tries, m.good = 0, 0, m.revision
	}
	m.crashes++
	m.fallBack(e.Err, m.crashes > m.policy.Restarts)
	return choose(e.Permanent || m.crashes > m.policy.Restarts, exhausted, crashed), true
}

// servesClients reports whether the present process has been ready.
func (m *Machine) servesClients() bool {
	return m.state == Ready || m.state == Leaving || m.state == Retiring || m.state == Holding
}

// replacementFailed returns to the older process after the end of one that was not ready yet.
func (m *Machine) replacementFailed(e Event) input {
	err := e.Err
	if err == nil {
		err = errEndedEarly
	}
	if m.revision == m.good {
		m.tries++
	} else {
		m.fallBack(err, false)
	}
	m.backToOlder()
	if m.tries >= m.policy.Tries && m.wanted == m.refused {
		m.tries = 0
		return hopeless
	}
	return failed
}

// backToOlder makes the older process the present one.
func (m *Machine) backToOlder() {
	m.process, m.older = m.older, 0
	m.revision, m.serving = m.serving, 0
}

// fallBack counts a failure with the present configuration, and refuses it after too many, or if exhausted, if there is a good one to
// go back to.
func (m *Machine) fallBack(err error, exhausted bool) {
	if m.good == 0 || m.revision == m.good || m.revision != m.wanted {
		return
	}
	if m.tries++; m.tries >= m.policy.Tries || exhausted {
		m.refused, m.why = m.revision, err
		m.tries, m.crashes = 0, 0
	}
}

// next returns the configuration for the next start.
func (m *Machine) next() int {
	return choose(m.wanted == m.refused, m.good, m.wanted)
}

func choose[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// apply makes a transition.
func (m *Machine) apply(now time.Time, t transition) []Action {
	if m.state = t.to; t.upon == up && t.in != Ready {
		m.ready = now
	}
	var actions []Action
	for _, s := range t.do {
		if s == doStart || s == doReplace {
			m.began = now
		}
		actions = append(actions, m.actions(s)...)
	}
	return actions
}

// actions returns the actions for a step: none if the step concerns only the machine.
func (m *Machine) actions(s step) []Action {
	set := func(d time.Duration) []Action { return []Action{{Do: Set, After: d}} }
	do := func(d Do) []Action { return []Action{{Do: d, Process: m.process}} }
	both := func(d Do) []Action {
		if m.older == 0 {
			return do(d)
		}
		return append(do(d), Action{Do: d, Process: m.older})
	}
	switch s {
	case doStart:
		return m.start(0)
	case doReplace:
		return m.replace()
	case doProbe:
		return do(Probe)
	case doWarn:
		return do(Warn)
	case doDrain:
		return do(Drain)
	case doCount:
		return do(Count)
	case doTerminate:
		return both(Terminate)
	case doKill:
		return both(Kill)
	case doKillNew:
		return do(Kill)
	case doKillOld:
		return m.killOld()
	case setProbe:
		return set(m.policy.Probe)
	case setWatch:
		return set(m.policy.Watch)
	case setRetire:
		return set(m.policy.Retire)
	case setBackoff:
		return set(m.backoff())
	case setDrain:
		return set(choose(m.policy.UntilIdle, m.policy.MinDrain, m.policy.Drain))
	case setRecount:
		return set(m.policy.Recount)
	case setKill:
		return set(m.policy.Kill)
	case resultDone, resultCrashed, resultAborted:
	}
	m.setResult(s)
	return nil
}

// start starts another process.
func (m *Machine) start(parent int) []Action {
	m.started++
	m.process, m.revision, m.countFailures = m.started, m.next(), 0
	return []Action{{Do: Start, Process: m.process, Parent: parent, Revision: m.revision}}
}

// replace starts another process beside the present one.
func (m *Machine) replace() []Action {
	m.older, m.serving, m.good = m.process, m.revision, m.revision
	return m.start(m.older)
}

// killOld kills the older one of two processes, and forgets it. Nothing follows from its end.
func (m *Machine) killOld() []Action {
	if m.older == 0 {
		return nil
	}
	kill := []Action{{Do: Kill, Process: m.older}}
	if m.state != Retiring {
		m.older, m.serving = 0, 0
	}
	return kill
}

// backoff returns the time to wait after the last of the failures in a row.
func (m *Machine) backoff() time.Duration {
	d := m.policy.FirstBackoff
	for range max(m.crashes, m.tries) - 1 {
		if d *= 2; d >= m.policy.LongestBackoff {
			return m.policy.LongestBackoff
		}
	}
	return d
}

func (m *Machine) setResult(s step) {
	switch {
	case s == resultAborted:
		m.result = ErrAborted
	case s == resultCrashed && m.last.Permanent:
		m.result = m.last.Err
	case s == resultCrashed && m.crashes == 1:
		m.result = fmt.Errorf("%w: %w", ErrCrashed, m.last.Err)
	case s == resultCrashed:
		m.result = fmt.Errorf("%w %d times in a row, the last time: %w", ErrCrashed, m.crashes, m.last.Err)
	}
}
