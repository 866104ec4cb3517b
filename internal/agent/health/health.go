// Package health checks whether a workload is healthy, where no kubelet does: it probes the application, and Envoy, at intervals. The probe
// comes from the WorkloadGroup to which the machine belongs (readinessProbe of ProxyConfig).
//
// Invariants: A result counts when it was the same as often as the thresholds say, and is reported only when it differs from the last
// report. A probe ends with its time limit, and with it all processes of a command.
//
// Goroutines: the package starts none. Checker.Run makes one probe after the other.
package health

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Options are the probe of the application, the check of Envoy, and the receiver of reports.
type Options struct {
	Probe
	// Envoy returns nil if Envoy is ready.
	Envoy func(context.Context) error
	// Report is called with each change; a nil error means that the workload is healthy.
	Report func(error)
	Log    *slog.Logger
}

// Checker checks whether a workload is healthy.
type Checker struct {
	Options
	// good and bad count the results in a row. reported is set after the first report, and healthy is the last reported result.
	good, bad         int32
	reported, healthy bool
}

// New returns a checker.
func New(o Options) *Checker { return &Checker{Options: o} }

// Run probes until ctx is cancelled.
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

// try probes Envoy and the application once.
func (c *Checker) try(ctx context.Context) error {
	limited := func(what string, ask func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		err := ask(ctx)
		if late := ctx.Err(); late != nil {
			// The end of the request may bring an answer: a server whose client ends TLS can still write one.
			return fmt.Errorf("%s did not answer within %v: %w", what, c.Timeout, cmp.Or(err, late))
		}
		return err
	}
	if err := limited("Envoy", c.Envoy); err != nil {
		return fmt.Errorf("the proxy is not ready: %w", err)
	}
	return limited("the application", c.ask)
}

// take counts a result, and reports it if the health has changed.
func (c *Checker) take(err error) {
	if err == nil {
		c.good, c.bad = c.good+1, 0
	} else {
		c.good, c.bad = 0, c.bad+1
		c.Log.Debug("probing the workload", "error", err)
	}
	switch {
	case err == nil && c.good >= c.Successes && (!c.reported || !c.healthy):
		c.Log.Info("the workload is healthy")
	case err != nil && c.bad >= c.Failures && (!c.reported || c.healthy):
		c.Log.Warn("the workload is not healthy; it gets no requests until it is", "error", err, "probes", c.bad)
	default:
		return
	}
	c.reported, c.healthy = true, err == nil
	c.Report(err)
}
