package life

import (
	"fmt"
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
	// Ended reports that the process of Epoch has exited, with Err nil if its exit code was 0. Permanent reports that another
	// start would fail too.
	Ended
	// TimerFired reports that the timer has fired.
	TimerFired
	// Leave asks to drain clients while Envoy goes on.
	Leave
	// End asks to stop Envoy. A second End asks to stop it immediately.
	End
)

// Event is an input of a Machine.
type Event struct {
	Kind      Kind
	Epoch     int // the epoch of the process, for Probed, Counted and Ended
	N         int
	Err       error
	Permanent bool
}

// Do is the operation of an Action.
type Do uint8

// The operations.
const (
	// Start starts the process of Epoch.
	Start Do = iota
	// Probe checks whether the process of Epoch is ready.
	Probe
	// Warn makes Envoy ask clients to use other endpoints, and go on listening.
	Warn
	// Drain makes Envoy ask clients to use other endpoints, and stop listening at the end of its drain time.
	Drain
	// Count counts the connections.
	Count
	// Terminate asks the process to exit.
	Terminate
	// Kill kills the process.
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
	Do    Do
	Epoch int
	After time.Duration
}

// Machine is the state machine of one Envoy. It is pure: it gets the time as an argument and performs no action itself.
type Machine struct {
	policy        Policy
	state         State
	epoch         int       // number of the present process; the first is 1
	ready         time.Time // when the present process became ready
	crashes       int       // crashes in a row
	countFailures int       // failed counts of connections in a row
	last          Event     // the last Ended event
	result        error
}

// NewMachine returns a machine in the state Idle.
func NewMachine(p Policy) *Machine { return &Machine{policy: p} }

// State returns the present state.
func (m *Machine) State() State { return m.state }

// Result returns, in the state Stopped, nil if Envoy ended as intended.
func (m *Machine) Result() error { return m.result }

// Step processes an event and returns the actions in order. It returns false if the event has no effect in the present state.
// Otherwise the timer runs only if the actions contain Set.
func (m *Machine) Step(now time.Time, e Event) ([]Action, bool) {
	upon, ok := m.classify(now, e)
	if !ok {
		return nil, false
	}
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
		return choose(e.Err == nil, up, down), e.Epoch == m.epoch
	case Counted:
		m.countFailures = choose(e.Err == nil, 0, m.countFailures+1)
		idle := e.Err == nil && e.N == 0 || m.countFailures > m.policy.CountFailures
		return choose(idle, drained, busy), e.Epoch == m.epoch
	case Ended:
		return m.ended(now, e), e.Epoch == m.epoch
	case TimerFired:
		// A drain with a fixed time is complete when the timer fires.
		return choose(m.state == Draining && !m.policy.UntilIdle, drained, alarm), true
	case Leave:
		return leave, true
	case End:
	}
	return end, true
}

func (m *Machine) ended(now time.Time, e Event) input {
	m.last = e
	if e.Err == nil {
		return exited
	}
	if (m.state == Ready || m.state == Leaving) && now.Sub(m.ready) >= m.policy.StableAfter {
		m.crashes = 0
	}
	m.crashes++
	return choose(e.Permanent || m.crashes > m.policy.Restarts, exhausted, crashed)
}

func choose[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// apply makes a transition.
func (m *Machine) apply(now time.Time, t transition) []Action {
	if m.state = t.to; t.upon == up {
		m.ready = now
	}
	var actions []Action
	for _, s := range t.do {
		if a, ok := m.action(s); ok {
			actions = append(actions, a)
		}
	}
	return actions
}

// action returns the action for a step, or false if the step concerns only the machine.
func (m *Machine) action(s step) (Action, bool) {
	set := func(d time.Duration) (Action, bool) { return Action{Do: Set, After: d}, true }
	do := func(d Do) (Action, bool) { return Action{Do: d, Epoch: m.epoch}, true }
	switch s {
	case doStart:
		m.epoch++
		m.countFailures = 0
		return do(Start)
	case doProbe:
		return do(Probe)
	case doWarn:
		return do(Warn)
	case doDrain:
		return do(Drain)
	case doCount:
		return do(Count)
	case doTerminate:
		return do(Terminate)
	case doKill:
		return do(Kill)
	case setProbe:
		return set(m.policy.Probe)
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
	return Action{}, false
}

// backoff returns the time to wait after the last of the crashes in a row.
func (m *Machine) backoff() time.Duration {
	d := m.policy.FirstBackoff
	for range m.crashes - 1 {
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
