package life

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Process is a running Envoy.
type Process interface {
	// Terminate asks it to end; Kill ends it. Neither waits.
	Terminate() error
	Kill() error
	// Wait blocks until it has ended and says how; nil is success.
	Wait() error
}

// Envoy is what a Supervisor looks after.
type Envoy interface {
	// Start runs the next process. Hopeless says that trying again cannot help.
	Start() (p Process, hopeless bool, err error)
	// Ready returns nil if it serves, and otherwise why not.
	Ready(ctx context.Context) error
	// Drain makes it ask clients to go elsewhere; unless it is to go on, it takes no more in the end.
	Drain(ctx context.Context, goOn bool) error
	// Connections is how many clients have one open.
	Connections(ctx context.Context) (int, error)
}

// patience is how long Envoy may take to answer a question. It answers in milliseconds or is stuck.
const patience = 2 * time.Second

// longStart is how long a start may take before somebody should know.
const longStart = 5 * time.Second

// Supervisor runs one Envoy. Its methods may be called from any goroutine.
type Supervisor struct {
	envoy Envoy
	log   *slog.Logger

	machine *Machine // Run's only
	process Process  // Run's only
	alarm   *time.Timer
	began   time.Time // of the present process
	worry   time.Time // when to say that it is still not ready

	events chan Event // what has been found out
	wishes chan Event // what others want
	gone   chan struct{}
	ready  chan struct{} // closed when Envoy is ready for the first time
	state  atomic.Uint32
	asking sync.WaitGroup
}

// New returns a supervisor of an Envoy that was not started yet.
func New(e Envoy, p Policy, log *slog.Logger) *Supervisor {
	alarm := time.NewTimer(time.Hour)
	alarm.Stop()
	return &Supervisor{
		envoy: e, log: log, machine: NewMachine(p), alarm: alarm,
		events: make(chan Event), wishes: make(chan Event), gone: make(chan struct{}), ready: make(chan struct{}),
	}
}

// State is where the life stands.
func (s *Supervisor) State() State { return State(s.state.Load()) }

// Ready is closed when Envoy has become ready for the first time.
func (s *Supervisor) Ready() <-chan struct{} { return s.ready }

// Leave asks for clients to be sent elsewhere while Envoy goes on. It does nothing unless Envoy is ready.
func (s *Supervisor) Leave() { s.wish(Event{Kind: Leave}) }

// End asks for the end; asking again ends it at once.
func (s *Supervisor) End() { s.wish(Event{Kind: End}) }

func (s *Supervisor) wish(e Event) {
	select {
	case s.wishes <- e:
	case <-s.gone:
	}
}

// Run starts Envoy and blocks until it has ended for good. A cancelled ctx is a wish to end, like End. It is called
// once.
func (s *Supervisor) Run(ctx context.Context) error {
	asks, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		cancel()
		close(s.gone)
		s.asking.Wait()
		s.alarm.Stop()
	}()
	cancelled := ctx.Done()
	s.step(asks, Event{Kind: Begin})
	for s.machine.State() != Gone {
		select {
		case e := <-s.events:
			s.step(asks, e)
		case e := <-s.wishes:
			s.step(asks, e)
		case <-s.alarm.C:
			s.step(asks, Event{Kind: Rang})
		case <-cancelled:
			cancelled = nil
			s.step(asks, Event{Kind: End})
		}
	}
	return s.machine.Verdict()
}

// step lets the machine decide, and does what it says.
func (s *Supervisor) step(ctx context.Context, e Event) {
	before := s.machine.State()
	actions, moved := s.machine.Step(time.Now(), e)
	if !moved {
		return
	}
	s.tell(before, e)
	if e.Kind == Probed && s.machine.State() == Starting {
		s.wonder(e.Err)
	}
	s.alarm.Stop()
	for _, a := range actions {
		s.do(ctx, a)
	}
}

// tell publishes and logs a change of state.
func (s *Supervisor) tell(before State, e Event) {
	now := s.machine.State()
	if now == before {
		return
	}
	s.state.Store(uint32(now))
	log := s.log.With("state", now.String(), "was", before.String())
	switch now {
	case Idle:
	case Starting:
		log.Info("starting Envoy")
	case Ready:
		log.Info("Envoy is ready", "after", time.Since(s.began).Round(time.Millisecond).String())
		select {
		case <-s.ready:
		default:
			close(s.ready)
		}
	case BackingOff:
		log.Error("Envoy has crashed and will be started again", "how", e.Err, "restart_in", s.machine.backoff().String())
	case Leaving:
		log.Info("asking clients to go elsewhere")
	case Checking:
		log.Info("told to end before Envoy was ready: looking whether it serves")
	case Draining:
		log.Info("draining: requests under way may finish")
	case Exiting:
		log.Info("ending Envoy")
	case Gone:
		how := e.Err
		if e.Kind == Ended && e.Err == nil && before != Exiting && before != Draining {
			how = errByOthers
		}
		if how != nil {
			log = log.With("how", how)
		}
		log.Info("Envoy has ended")
	}
}

// wonder says what Envoy is waiting for, if that takes long: less and less often.
func (s *Supervisor) wonder(why error) {
	now := time.Now()
	if now.Before(s.worry) {
		return
	}
	waited := now.Sub(s.began)
	s.worry = now.Add(waited)
	s.log.Warn("Envoy is still not ready", "after", waited.Round(time.Second).String(), "because", why)
}

// errByOthers is no mistake, but worth knowing.
var errByOthers = errors.New("somebody told it to, and it was not the agent")

func (s *Supervisor) do(ctx context.Context, a Action) {
	switch a.Do {
	case Start:
		s.start(a.Epoch)
	case Probe:
		s.ask(ctx, func(ctx context.Context) Event {
			return Event{Kind: Probed, Epoch: a.Epoch, Err: s.envoy.Ready(ctx)}
		})
	case Count:
		s.ask(ctx, func(ctx context.Context) Event {
			n, err := s.envoy.Connections(ctx)
			s.log.Debug("counted connections", "connections", n, "error", err)
			return Event{Kind: Counted, Epoch: a.Epoch, N: n, Err: err}
		})
	case Warn, Drain:
		s.asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if err := s.envoy.Drain(ctx, a.Do == Warn); err != nil {
				s.log.Warn("Envoy could not be asked to send clients elsewhere; they notice when it ends", "error", err)
			}
		})
	case Terminate:
		s.signal(a.Do, s.process.Terminate())
	case Kill:
		s.log.Warn("killing Envoy", "state", s.machine.State().String())
		s.signal(a.Do, s.process.Kill())
	case Set:
		s.alarm.Reset(a.After)
	}
}

// signal logs a signal that did not arrive. The process has ended by then, as its Wait tells.
func (s *Supervisor) signal(what Do, err error) {
	if err != nil {
		s.log.Debug("a signal did not reach Envoy", "to", what.String(), "error", err)
	}
}

// start runs a process, and somebody who waits for its end.
func (s *Supervisor) start(epoch int) {
	s.began = time.Now()
	s.worry = s.began.Add(longStart)
	p, hopeless, err := s.envoy.Start()
	s.process = p
	wait := func() Event { return Event{Kind: Ended, Epoch: epoch, Err: err, Hopeless: hopeless} }
	if err == nil {
		wait = func() Event { return Event{Kind: Ended, Epoch: epoch, Err: p.Wait()} }
	}
	s.asking.Go(func() { s.report(wait()) })
}

// ask finds something out without keeping the loop.
func (s *Supervisor) ask(ctx context.Context, question func(context.Context) Event) {
	s.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		s.report(question(ctx))
	})
}

func (s *Supervisor) report(e Event) {
	select {
	case s.events <- e:
	case <-s.gone:
	}
}
