package life

import (
	"fmt"
	"time"
)

// Kind is what an Event is about.
type Kind uint8

// The kinds of events.
const (
	// Begin: the first one.
	Begin Kind = iota
	// Probed: Err says why Envoy is not ready, nil that it is.
	Probed
	// Counted: Envoy has N connections, or Err says why nobody knows.
	Counted
	// Ended: the process of Epoch has ended; Err says how, nil means with success. Hopeless says that starting it again
	// cannot help.
	Ended
	// Rang: the timer went off.
	Rang
	// Leave and End are wishes: to send clients elsewhere, and to end.
	Leave
	// End is sent again by who does not want to wait.
	End
)

// Event is something that has happened.
type Event struct {
	Kind     Kind
	Epoch    int // of the process asked, for Probed, Counted and Ended
	N        int
	Err      error
	Hopeless bool
}

// Do is what an Action does.
type Do uint8

// What actions do.
const (
	// Start starts the process of Epoch.
	Start Do = iota
	// Probe asks whether the process of Epoch is ready.
	Probe
	// Warn asks Envoy to send clients elsewhere and to go on, Drain to take no more in the end.
	Warn
	// Drain is the last request of this kind.
	Drain
	// Count asks for the number of connections.
	Count
	// Terminate tells the process to end.
	Terminate
	// Kill ends the process, without asking.
	Kill
	// Set sets the timer to After.
	Set
)

// String names what is done.
func (d Do) String() string {
	return [...]string{"start", "probe", "warn", "drain", "count", "terminate", "kill", "set"}[d]
}

// Action is something to be done.
type Action struct {
	Do    Do
	Epoch int
	After time.Duration
}

// Machine decides what happens in an Envoy's life. It is pure: time is told to it, and it does nothing by itself.
type Machine struct {
	policy  Policy
	state   State
	epoch   int       // of the present process; the first is 1
	ready   time.Time // since when it is, or was
	crashes int       // in a row
	blind   int       // counts in a row that failed
	last    Event     // how the last process ended
	verdict error
}

// NewMachine returns the machine before the start.
func NewMachine(p Policy) *Machine { return &Machine{policy: p} }

// State is where the life stands.
func (m *Machine) State() State { return m.state }

// Verdict says, once the state is Gone, whether the life ended well.
func (m *Machine) Verdict() error { return m.verdict }

// Step takes an event and returns what is to be done, in order. It is false for an event that changes nothing; after
// any other the timer runs only if there is a Set among the actions.
func (m *Machine) Step(now time.Time, e Event) ([]Action, bool) {
	upon, ok := m.read(now, e)
	if !ok {
		return nil, false
	}
	for _, t := range table {
		if t.in == m.state && t.upon == upon {
			return m.take(now, t), true
		}
	}
	return nil, false
}

// read turns an event into an input, and counts. It is false for what an earlier process has left behind.
func (m *Machine) read(now time.Time, e Event) (input, bool) {
	switch e.Kind {
	case Begin:
		return begin, true
	case Probed:
		return choose(e.Err == nil, up, down), e.Epoch == m.epoch
	case Counted:
		m.blind = choose(e.Err == nil, 0, m.blind+1)
		idle := e.Err == nil && e.N == 0 || m.blind > m.policy.Blind
		return choose(idle, quiet, busy), e.Epoch == m.epoch
	case Ended:
		return m.ended(now, e), e.Epoch == m.epoch
	case Rang:
		// A drain that is only a matter of time is over when the time is.
		return choose(m.state == Draining && !m.policy.UntilIdle, quiet, alarm), true
	case Leave:
		return leave, true
	case End:
	}
	return end, true
}

func (m *Machine) ended(now time.Time, e Event) input {
	m.last = e
	if e.Err == nil {
		return left
	}
	if (m.state == Ready || m.state == Leaving) && now.Sub(m.ready) >= m.policy.Steady {
		m.crashes = 0
	}
	m.crashes++
	return choose(e.Hopeless || m.crashes > m.policy.Restarts, spent, crashed)
}

func choose[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// take makes a transition.
func (m *Machine) take(now time.Time, t transition) []Action {
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

// action is what a step asks the shell to do; some are for the machine alone.
func (m *Machine) action(s step) (Action, bool) {
	set := func(d time.Duration) (Action, bool) { return Action{Do: Set, After: d}, true }
	do := func(d Do) (Action, bool) { return Action{Do: d, Epoch: m.epoch}, true }
	switch s {
	case doStart:
		m.epoch++
		m.blind = 0
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
	case setLook:
		return set(m.policy.Look)
	case setKill:
		return set(m.policy.Kill)
	case sayDone, sayCrashed, sayCutShort:
	}
	m.judge(s)
	return Action{}, false
}

// backoff is how long to wait after the last of the crashes in a row.
func (m *Machine) backoff() time.Duration {
	d := m.policy.FirstBackoff
	for range m.crashes - 1 {
		if d *= 2; d >= m.policy.LongestBackoff {
			return m.policy.LongestBackoff
		}
	}
	return d
}

func (m *Machine) judge(s step) {
	switch {
	case s == sayCutShort:
		m.verdict = ErrCutShort
	case s == sayCrashed && m.last.Hopeless:
		m.verdict = m.last.Err
	case s == sayCrashed && m.crashes == 1:
		m.verdict = fmt.Errorf("%w: %w", ErrCrashed, m.last.Err)
	case s == sayCrashed:
		m.verdict = fmt.Errorf("%w %d times in a row, the last time: %w", ErrCrashed, m.crashes, m.last.Err)
	}
}
