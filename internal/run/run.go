// Package run owns the life of a program's long-running parts: it starts them in order, and when one of them ends, or
// the program is told to, it stops them in reverse order, each within its time. It also runs command lines, knows the
// exit codes and the build of all programs, and paces the garbage collector.
//
// Invariants: an actor is started after everything before it is ready; it is told to stop after everything behind it
// has ended or used up its time; nothing is started once stopping has begun; Run returns when all actors have ended or
// the group's time is up, and then names those that are still running.
//
// It starts one goroutine per actor, and those of the HTTP servers it runs; none outlives Run unless an actor does not
// obey its context. It knows nothing of meshes: it must not import anything of this project.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// slowStart is after how long somebody is told what the start is waiting for, again and again.
const slowStart = 10 * time.Second

// Actor is one long-running part of a program.
type Actor struct {
	// Name is what logs and errors call it.
	Name string
	// Run works until ctx is cancelled, and returns nil then. Returning earlier stops the whole group.
	Run func(ctx context.Context) error
	// Ready is closed when what comes behind may start; nil: at once.
	Ready <-chan struct{}
	// Stop is how long it may take to end once told to; 0: what is left of the group's time.
	Stop time.Duration
}

// Group is a list of actors with one life.
type Group struct {
	log    *slog.Logger
	grace  time.Duration
	actors []Actor
}

// New returns an empty group. grace bounds the time from the order to stop until Run returns.
func New(log *slog.Logger, grace time.Duration) *Group { return &Group{log: log, grace: grace} }

// Add appends an actor. All are added before Run.
func (g *Group) Add(a Actor) { g.actors = append(g.actors, a) }

// running is an actor that was started.
type running struct {
	Actor
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

// Run starts the actors in order and blocks until all have ended. It returns nil if they ended because ctx was
// cancelled; otherwise what the first one to end said, and what went wrong on the way out.
func (g *Group) Run(ctx context.Context) error {
	ended := make(chan *running, len(g.actors))
	started, cause := g.start(ctx, ended)
	if cause == nil && ctx.Err() == nil {
		select {
		case first := <-ended:
			cause = first.cause()
		case <-ctx.Done():
		}
	}
	return errors.Join(append([]error{cause}, g.stop(started, cause)...)...)
}

// start starts the actors one after the other. The error says which of them has ended already.
func (g *Group) start(ctx context.Context, ended chan *running) (started []*running, cause error) {
	for _, a := range g.actors {
		select {
		case <-ctx.Done():
			return started, nil
		default:
		}
		// Each has a context of its own: they are not to stop all at once when ctx is cancelled.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{Actor: a, cancel: cancel, done: make(chan struct{})}
		started = append(started, r)
		g.log.Debug("starting", "actor", a.Name)
		go func() {
			r.err = r.Run(own)
			close(r.done)
			ended <- r
		}()
		if cause := g.await(ctx, r, ended); cause != nil {
			return started, cause
		}
	}
	return started, nil
}

// await waits until the actor is ready. The error says which actor has ended meanwhile.
func (g *Group) await(ctx context.Context, r *running, ended <-chan *running) error {
	if r.Ready == nil {
		return nil
	}
	begin := time.Now()
	slow := time.NewTicker(slowStart)
	defer slow.Stop()
	for {
		select {
		case <-r.Ready:
			return nil
		case first := <-ended:
			return first.cause()
		case <-ctx.Done():
			return nil
		case <-slow.C:
			g.log.Warn("still waiting for a part to be ready", "actor", r.Name, "waited", time.Since(begin).Round(time.Second))
		}
	}
}

// cause says that the actor ended before anybody told it to.
func (r *running) cause() error {
	if r.err == nil {
		return fmt.Errorf("%s ended by itself", r.Name)
	}
	return fmt.Errorf("%s: %w", r.Name, r.err)
}

// stop ends the actors, the last one first. cause is what has been said already of the one that ended first.
func (g *Group) stop(started []*running, cause error) []error {
	var errs []error
	deadline := time.Now().Add(g.grace)
	for _, r := range slices.Backward(started) {
		r.cancel()
		patience := time.Until(deadline)
		if r.Stop > 0 {
			patience = min(patience, r.Stop)
		}
		if !r.wait(patience) {
			errs = append(errs, fmt.Errorf("%s did not stop within %v", r.Name, max(patience, 0).Round(time.Millisecond)))
			continue
		}
		g.log.Debug("stopped", "actor", r.Name)
		if r.err != nil && !errors.Is(r.err, context.Canceled) && (cause == nil || !errors.Is(cause, r.err)) {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.err))
		}
	}
	return errs
}

// wait reports whether the actor has ended, looking at least once.
func (r *running) wait(patience time.Duration) bool {
	select {
	case <-r.done:
		return true
	default:
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-r.done:
		return true
	case <-t.C:
		return false
	}
}
