// Package election elects a leader among the replicas of a program, with a Lease of the API server (coordination.k8s.io), as Kubernetes' own
// components do. A decision record (doc/decisions/election.md) says why this is not client-go's package.
//
// Invariants: the clocks of candidates may differ, because no candidate compares its clock with the times in the Lease: each measures for how long it has
// seen the Lease unchanged. A leader stops at the latest RenewDeadline after it has sent the last request that renewed the Lease; another
// candidate takes over at the earliest when the Lease has stayed the same for its duration, which is longer. The API server refuses a write by
// a candidate that has not seen the last one. If a user deletes the Lease, a replica that has not seen it leads at once, and the former
// leader until it renews the next time. Goroutines: Run starts one for the work of each term, and waits for its end.
package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Leases reads and writes the Leases of a namespace.
type Leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordination.Lease, error)
	Create(ctx context.Context, l *coordination.Lease, o metav1.CreateOptions) (*coordination.Lease, error)
	Update(ctx context.Context, l *coordination.Lease, o metav1.UpdateOptions, subresources ...string) (*coordination.Lease, error)
}

// Times of an election. Duration must be longer than RenewDeadline, which must be several times RetryPeriod.
type Times struct {
	// Duration is how long the others wait for a leader that does not renew the Lease. It is a number of seconds.
	Duration time.Duration
	// RenewDeadline is how long a leader tries to renew the Lease before it stops.
	RenewDeadline time.Duration
	// RetryPeriod is the time between attempts. Candidates that do not lead wait up to jitter times as long in addition.
	RetryPeriod time.Duration
}

const jitter = 1.2

// Candidate is a replica that wants to lead. It is for one goroutine.
type Candidate struct {
	Leases Leases
	// Name is the name of the Lease.
	Name string
	// Identity is the name of this replica. No two replicas may have the same.
	Identity string
	Times    Times
	// Started and Stopped are called before and after each term. The error says why the Lease was not renewed; nil at the end of Run.
	Started func()
	Stopped func(error)

	lease *coordination.Lease // as the API server had it last; nil if none was seen
	// seen is when lease was found different from the one before. The record of a Lease that is gone counts until it expires.
	seen time.Time
	// renewed is when the request was sent that renewed the Lease last.
	renewed time.Time
}

var (
	// errOther says that another candidate leads.
	errOther = errors.New("another replica holds the lease")
	errLate  = errors.New("the lease was not renewed in time")
)

// Run calls work whenever this candidate leads, until ctx ends. The context of work ends when the candidate leads no longer, and Run waits for work
// to return before it competes again. At the end it gives the Lease back, so that another one can lead at once.
func (c *Candidate) Run(ctx context.Context, work func(context.Context)) {
	for ctx.Err() == nil {
		if c.attempt(ctx, c.Times.RenewDeadline) == nil {
			c.term(ctx, work)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.Times.RetryPeriod + time.Duration(rand.Float64()*jitter*float64(c.Times.RetryPeriod))): //nolint:gosec // it is no secret
		}
	}
}

// term leads until the Lease is lost, or until ctx has ended and work has returned.
func (c *Candidate) term(ctx context.Context, work func(context.Context)) {
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	c.Started()
	go func() {
		defer close(done)
		work(working)
		<-working.Done()
	}()
	err := c.keep(ctx, done)
	stop()
	<-done
	if err == nil {
		c.release(context.WithoutCancel(ctx))
	}
	c.Stopped(err)
}

// keep renews the Lease until done is closed. It fails when the Lease is lost.
func (c *Candidate) keep(ctx context.Context, done <-chan struct{}) error {
	var last error
	for {
		left := c.Times.RenewDeadline - time.Since(c.renewed)
		switch {
		case errors.Is(last, errOther):
			return last
		case left <= 0:
			return errors.Join(errLate, last)
		}
		select {
		case <-done:
			return nil
		case <-time.After(min(left, c.Times.RetryPeriod)):
		}
		if left = c.Times.RenewDeadline - time.Since(c.renewed); left <= 0 {
			continue
		}
		during := ctx
		if ctx.Err() != nil {
			during = context.WithoutCancel(ctx) // the work has not ended yet
		}
		last = c.attempt(during, left)
	}
}

// attempt acquires or renews the Lease. It fails with errOther if another candidate holds it.
func (c *Candidate) attempt(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	sent := time.Now()
	if c.holds() && c.valid() {
		// The Lease seen last is probably still the present one.
		if err := c.write(ctx, c.lease); err == nil {
			c.renewed = sent
			return nil
		}
	}
	is, err := c.Leases.Get(ctx, c.Name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return fmt.Errorf("reading the lease: %w", err)
	case !missing:
		c.see(is)
	}
	if c.lease != nil && holder(c.lease) != "" && !c.holds() && c.valid() {
		return errOther
	}
	sent = time.Now()
	if missing {
		is = nil
	}
	if err := c.write(ctx, is); err != nil {
		return fmt.Errorf("writing the lease: %w", err)
	}
	c.renewed = sent
	return nil
}

// write makes this candidate the holder in a Lease. If there is none (nil), it creates the Lease.
func (c *Candidate) write(ctx context.Context, is *coordination.Lease) error {
	seconds, transitions, now := int32(c.Times.Duration/time.Second), int32(0), metav1.NowMicro()
	acquired := &now
	next := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
	if is != nil {
		next = is.DeepCopy()
		if next.Spec.LeaseTransitions != nil {
			transitions = *next.Spec.LeaseTransitions
		}
		switch {
		case holder(is) != c.Identity:
			transitions++
		case next.Spec.AcquireTime != nil:
			acquired = next.Spec.AcquireTime
		}
	}
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.LeaseTransitions = &c.Identity, &seconds, &transitions
	next.Spec.AcquireTime, next.Spec.RenewTime = acquired, &now
	var err error
	if is == nil {
		next, err = c.Leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		next, err = c.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err == nil {
		c.see(next)
	}
	return err
}

// release gives the Lease back. It fails in silence: then the Lease expires.
func (c *Candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.Times.RenewDeadline)
	defer cancel()
	is, err := c.Leases.Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil || holder(is) != c.Identity {
		return
	}
	none, second, now := "", int32(1), metav1.NowMicro()
	is.Spec.HolderIdentity, is.Spec.LeaseDurationSeconds, is.Spec.AcquireTime, is.Spec.RenewTime = &none, &second, &now, &now
	if is, err = c.Leases.Update(ctx, is, metav1.UpdateOptions{}); err == nil {
		c.see(is)
	}
}

// see takes a Lease as the API server has it now.
func (c *Candidate) see(is *coordination.Lease) {
	if c.lease == nil || !equality.Semantic.DeepEqual(c.lease.Spec, is.Spec) {
		c.seen = time.Now()
	}
	c.lease = is
}

// holds reports whether this candidate is the holder in the Lease seen last.
func (c *Candidate) holds() bool { return c.lease != nil && holder(c.lease) == c.Identity }

// valid reports whether the Lease seen last has not expired.
func (c *Candidate) valid() bool {
	s := c.lease.Spec.LeaseDurationSeconds
	return s != nil && time.Since(c.seen) < time.Duration(*s)*time.Second
}

func holder(l *coordination.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
