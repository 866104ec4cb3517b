// Package run runs the long-running parts of a program, called actors. It starts them in order. When one of them ends, or the
// program is asked to stop, it stops them in reverse order, each with a time limit. The package also runs command lines, defines
// the exit codes and the build information of all programs, and configures the garbage collector.
//
// Invariants: an actor is started after all actors before it are ready. It is stopped after all actors behind it have ended or
// exceeded their time limits. Nothing is started once stopping has begun. Run returns when all actors have ended or the group's
// time limit is exceeded; its error then names the actors that are still running.
//
// Goroutines: one per actor, and the goroutines of the HTTP and gRPC servers. All of them end before Run returns, unless an
// actor ignores its context.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// slowStart is the interval at which Run logs that it is still waiting for an actor to be ready.
const slowStart = 10 * time.Second

// Actor is a long-running part of a program.
type Actor struct {
	// Name is the name of the actor in logs and errors.
	Name string
	// Run works until ctx is cancelled, and then returns nil. If it returns earlier, the whole group is stopped.
	Run func(ctx context.Context) error
	// Ready is closed when the next actor may start. If it is nil, the next actor starts immediately.
	Ready <-chan struct{}
	// Stop limits the time for stopping the actor. 0 means the rest of the group's time.
	Stop time.Duration
}

// Group is a list of actors that are started and stopped together.
type Group struct {
	log    *slog.Logger
	grace  time.Duration
	actors []Actor
}

// New returns an empty group. grace limits the time from the request to stop until Run returns.
func New(log *slog.Logger, grace time.Duration) *Group { return &Group{log: log, grace: grace} }

// Add appends an actor. It must not be called after Run.
func (g *Group) Add(a Actor) { g.actors = append(g.actors, a) }

// running is an actor that was started.
type running struct {
	Actor
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// Run starts the actors in order and blocks until all have ended. It returns nil if they ended because ctx was cancelled.
// Otherwise it returns the error of the first actor that ended, and errors that occurred while stopping.
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

// start starts the actors one after the other. It returns an error if one of them ends before all are started.
func (g *Group) start(ctx context.Context, ended chan *running) (started []*running, cause error) {
	for _, a := range g.actors {
		select {
		case <-ctx.Done():
			return started, nil
		default:
		}
		// Each actor has its own context, so that cancelling ctx does not stop all of them at the same time.
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

// await waits until the actor is ready. It returns an error if an actor ends in the meantime.
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
			g.log.Warn("still waiting for an actor to be ready", "actor", r.Name, "waited", time.Since(begin).Round(time.Second))
		}
	}
}

// cause returns the error of an actor that ended before it was stopped.
func (r *running) cause() error {
	if r.err == nil {
		return fmt.Errorf("%s ended unexpectedly", r.Name)
	}
	return fmt.Errorf("%s: %w", r.Name, r.err)
}

// stop stops the actors, the last one first. cause is the error of the actor that ended first, which is not repeated.
func (g *Group) stop(started []*running, cause error) []error {
	var errs []error
	deadline := time.Now().Add(g.grace)
	for _, r := range slices.Backward(started) {
		r.cancel()
		timeout := time.Until(deadline)
		if r.Stop > 0 {
			timeout = min(timeout, r.Stop)
		}
		if !r.wait(timeout) {
			errs = append(errs, fmt.Errorf("%s did not stop within %v", r.Name, max(timeout, 0).Round(time.Millisecond)))
			continue
		}
		g.log.Debug("stopped", "actor", r.Name)
		if r.err != nil && !errors.Is(r.err, context.Canceled) && (cause == nil || !errors.Is(cause, r.err)) {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.err))
		}
	}
	return errs
}

// wait reports whether the actor ends within the timeout. It checks at least once.
func (r *running) wait(timeout time.Duration) bool {
	select {
	case <-r.done:
		return true
	default:
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-r.done:
		return true
	case <-t.C:
		return false
	}
}
