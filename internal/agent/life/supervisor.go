package life

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Process is a running Envoy.
type Process interface {
	// Terminate asks the process to exit, Kill kills it. Neither waits.
	Terminate() error
	Kill() error
	// Wait blocks until the process has exited. It returns nil if the exit code was 0.
	Wait() error
}

// Envoy is the interface to Envoy that a Supervisor needs.
type Envoy interface {
	// Start starts a process. permanent reports that another attempt would fail too.
	Start(l Launch) (p Process, permanent bool, err error)
	// Serves reports the revision of the configuration with which Envoy has become ready.
	Serves(revision int)
	// Clean removes the files and the shared memory of a process that has ended.
	Clean(process int)
	// Ready returns nil if the process that was started last is ready. Otherwise the error says why not.
	Ready(ctx context.Context) error
	// Drain makes Envoy ask clients to use other endpoints. Unless goOn is true, Envoy stops listening at the end.
	Drain(ctx context.Context, goOn bool) error
	// Connections returns the number of open downstream connections.
	Connections(ctx context.Context) (int, error)
}

// Launch describes a process to start.
type Launch struct {
	// Process is the number of the process, and Revision the number of its configuration.
	Process, Revision int
	// Parent is the process from which the new one takes the listeners over; 0 for none.
	Parent int
}

// requestTimeout is how long Envoy may take to answer a request. It answers in milliseconds unless it hangs.
const requestTimeout = 2 * time.Second

// longStart is how long a start may take before it is logged that Envoy is not ready.
const longStart = 5 * time.Second

// Supervisor runs one Envoy. Its methods may be called from any goroutine.
type Supervisor struct {
	envoy Envoy
	log   *slog.Logger

	machine     *Machine        // used by Run's goroutine only
	processes   map[int]Process // the running processes by their numbers; used by Run's goroutine only
	alarm       *time.Timer
	began       time.Time // start time of the present process
	nextSlowLog time.Time // when to log again that Envoy is not ready
	silent      bool      // whether it was logged that Envoy does not answer any more

	events   chan Event // results of actions
	requests chan Event // requests of other goroutines
	stopped  chan struct{}
	ready    chan struct{} // closed when Envoy is ready for the first time
	state    atomic.Uint32
	refused  atomic.Pointer[string]
	asking   sync.WaitGroup
}

// New returns a supervisor. Run starts Envoy.
func New(e Envoy, p Policy, log *slog.Logger) *Supervisor {
	alarm := time.NewTimer(time.Hour)
	alarm.Stop()
	return &Supervisor{
		envoy: e, log: log, machine: newMachine(p), processes: map[int]Process{}, alarm: alarm,
		events: make(chan Event), requests: make(chan Event), stopped: make(chan struct{}), ready: make(chan struct{}),
	}
}

// State returns the present state.
func (s *Supervisor) State() State { return State(s.state.Load()) }

// Refused says how Envoy failed with the newest configuration, if it did so too often. It runs with the last good one then.
func (s *Supervisor) Refused() (why string, refused bool) {
	if w := s.refused.Load(); w != nil {
		return *w, true
	}
	return "", false
}

// Ready returns a channel that is closed when Envoy becomes ready for the first time.
func (s *Supervisor) Ready() <-chan struct{} { return s.ready }

// Leave makes Envoy ask clients to use other endpoints while it continues to serve. It has no effect unless Envoy is ready.
func (s *Supervisor) Leave() { s.request(Event{Kind: Leave}) }

// End asks to stop Envoy. A second call stops it immediately.
func (s *Supervisor) End() { s.request(Event{Kind: End}) }

// Change makes Envoy run with the configuration of a revision, which must be higher than all others. The first one is 1.
func (s *Supervisor) Change(revision int) { s.request(Event{Kind: Changed, Revision: revision}) }

func (s *Supervisor) request(e Event) {
	select {
	case s.requests <- e:
	case <-s.stopped:
	}
}

// Run starts Envoy and blocks until it has stopped. Cancelling ctx has the same effect as End. Run must be called only once.
func (s *Supervisor) Run(ctx context.Context) error {
	asks, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		cancel()
		close(s.stopped)
		s.asking.Wait()
		s.alarm.Stop()
		for n := range s.processes { // they ended after the machine stopped
			s.envoy.Clean(n)
		}
	}()
	cancelled := ctx.Done()
	s.step(asks, Event{Kind: Begin})
	for s.machine.State() != Stopped {
		select {
		case e := <-s.events:
			s.step(asks, e)
		case e := <-s.requests:
			s.step(asks, e)
		case <-s.alarm.C:
			s.step(asks, Event{Kind: TimerFired})
		case <-cancelled:
			cancelled = nil
			s.step(asks, Event{Kind: End})
		}
	}
	return s.machine.Result()
}

// step passes an event to the machine and executes the actions.
func (s *Supervisor) step(ctx context.Context, e Event) {
	if e.Kind == Ended {
		delete(s.processes, e.Process)
		s.envoy.Clean(e.Process)
	}
	before := s.machine.State()
	actions, moved := s.machine.Step(time.Now(), e)
	s.logRefusal()
	if !moved {
		return
	}
	s.logTransition(before, e)
	if e.Kind == Probed {
		s.logProbe(before, e.Err)
	}
	s.alarm.Stop()
	for _, a := range actions {
		s.do(ctx, a)
	}
}

// logRefusal publishes and logs that Envoy has failed with the newest configuration too often, or that there is another one.
func (s *Supervisor) logRefusal() {
	revision, why := s.machine.Refused()
	switch {
	case revision == 0:
		s.refused.Store(nil)
	case s.refused.Load() == nil:
		text := why.Error()
		s.refused.Store(&text)
		s.log.Error("Envoy fails with the changed configuration, so the last good one is used until it changes again",
			"how", why, "revision", revision)
	}
}

func (s *Supervisor) do(ctx context.Context, a Action) {
	switch a.Do {
	case Start:
		s.start(Launch{Process: a.Process, Revision: a.Revision, Parent: a.Parent})
	case Probe:
		s.ask(ctx, func(ctx context.Context) Event {
			return Event{Kind: Probed, Process: a.Process, Err: s.envoy.Ready(ctx)}
		})
	case Count:
		s.ask(ctx, func(ctx context.Context) Event {
			n, err := s.envoy.Connections(ctx)
			s.log.Debug("counted connections", "connections", n, "error", err)
			return Event{Kind: Counted, Process: a.Process, N: n, Err: err}
		})
	case Warn, Drain:
		s.asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if err := s.envoy.Drain(ctx, a.Do == Warn); err != nil {
				s.log.Warn("Envoy could not be asked to drain its clients; they will notice when it stops", "error", err)
			}
		})
	case Terminate, Kill:
		s.signal(a)
	case Set:
		s.alarm.Reset(a.After)
	}
}

// signal sends a signal to a process. It fails only if the process has exited, which Wait reports.
func (s *Supervisor) signal(a Action) {
	p := s.processes[a.Process]
	if p == nil {
		return // it could not be started, or has exited
	}
	send := p.Terminate
	if a.Do == Kill {
		s.log.Warn("killing Envoy", "process", a.Process, "state", s.machine.State().String())
		send = p.Kill
	}
	if err := send(); err != nil {
		s.log.Debug("a signal did not reach Envoy", "to", a.Do.String(), "error", err)
	}
}

// start starts a process and a goroutine that waits for its exit.
func (s *Supervisor) start(l Launch) {
	s.began = time.Now()
	s.nextSlowLog = s.began.Add(longStart)
	p, permanent, err := s.envoy.Start(l)
	wait := func() Event { return Event{Kind: Ended, Process: l.Process, Err: err, Permanent: permanent} }
	if err == nil {
		s.processes[l.Process] = p
		wait = func() Event { return Event{Kind: Ended, Process: l.Process, Err: p.Wait()} }
	}
	s.asking.Go(func() { s.report(wait()) })
}

// ask executes a query without blocking the loop.
func (s *Supervisor) ask(ctx context.Context, question func(context.Context) Event) {
	s.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		s.report(question(ctx))
	})
}

func (s *Supervisor) report(e Event) {
	select {
	case s.events <- e:
	case <-s.stopped:
	}
}
