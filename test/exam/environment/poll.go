package environment

import (
	"context"
	"errors"
	"time"
)

// errTime says that a condition did not come true in time.
var errTime = errors.New("not in time")

// poll asks at once and then at every interval until the answer is yes or an error; it gives up after limit.
func poll(ctx context.Context, every, limit time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTime)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
