// Package health finds out whether a workload is healthy, where no kubelet does: it asks the application, and Envoy, at intervals. The
// probe is that of the WorkloadGroup to which the machine belongs (readinessProbe of ProxyConfig).
//
// Invariants: A result counts when it was the same as often as the thresholds say, and is told only when it differs from the one before.
// A probe ends with its time limit, and with it all processes of a command.
//
// Goroutines: the package starts none of its own. Checker.Run asks one thing after the other.
package health

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Options say what is asked, how often, and who is told.
type Options struct {
	Probe
	// Envoy returns nil if Envoy is ready.
	Envoy func(context.Context) error
	// Report is called with each change; a nil error means that the workload is healthy.
	Report func(error)
	Log    *slog.Logger
}

// Checker finds out whether a workload is healthy.
type Checker struct {
	Options
	// good and bad count the results in a row. told is whether something was told, and healthy what it was.
	good, bad     int32
	told, healthy bool
}

// New returns a checker.
func New(o Options) *Checker { return &Checker{Options: o} }

// Run asks until ctx is cancelled.
func (c *Checker) Run(ctx context.Context) error {
	for next := time.After(c.Delay); ; next = time.After(c.Period) {
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		}
		if err := c.try(ctx); ctx.Err() == nil {
			c.take(err)
		}
	}
}

// try asks Envoy and the application once.
func (c *Checker) try(ctx context.Context) error {
	limited := func(what string, ask func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		err := ask(ctx)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%s did not answer within %v: %w", what, c.Timeout, err)
		}
		return err
	}
	if err := limited("Envoy", c.Envoy); err != nil {
		return fmt.Errorf("the proxy is not ready: %w", err)
	}
	return limited("the application", c.ask)
}

// take takes in a result.
func (c *Checker) take(err error) {
	if err == nil {
		c.good, c.bad = c.good+1, 0
	} else {
		c.good, c.bad = 0, c.bad+1
		c.Log.Debug("probing the workload", "error", err)
	}
	switch {
	case err == nil && c.good >= c.Successes && (!c.told || !c.healthy):
		c.Log.Info("the workload is healthy")
	case err != nil && c.bad >= c.Failures && (!c.told || c.healthy):
		c.Log.Warn("the workload is not healthy; it gets no requests until it is", "error", err, "probes", c.bad)
	default:
		return
	}
	c.told, c.healthy = true, err == nil
	c.Report(err)
}
