// Package addresses writes the addresses that are allocated to ServiceEntries to their statuses, where all proxies and users find
// them. Queries (view/allocation) decide which addresses these are; this package only writes them.
//
// One replica writes: the leader. Addresses that it has written come back from the cluster as rows, and then need no write any more.
//
// Writer.Run is the only goroutine.
package addresses

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/view/allocation"
)

// Target is where addresses are written.
type Target interface {
	// WriteAddresses replaces status.addresses of a ServiceEntry, if they are what the caller has seen. An object that has others
	// or is gone is no error: the caller decides again from the next rows.
	WriteAddresses(ctx context.Context, k api.Key, has, want []api.Allocation) error
}

const (
	// period is the time between two looks at the mesh.
	period = time.Second
	// patience is how long a change that was written may take to come back, and longest the longest time between two attempts to
	// write one.
	patience = 5 * time.Second
	longest  = time.Minute
	// atOnce is how many objects are written after one look, so that no written address is decided on rows that are much older.
	atOnce = 50
)

// Writer writes addresses.
type Writer struct {
	mesh    *loop.Loop
	changes *loop.Kept[allocation.Changes]
	target  Target
	log     *slog.Logger
}

// New returns a writer of the addresses of a mesh whose loop does not run yet.
func New(mesh *loop.Loop, target Target, log *slog.Logger) *Writer {
	return &Writer{mesh, loop.Keep(mesh, mesh.Queries().Addresses.Observe, allocation.All{}), target, log}
}

// attempt is a change that this writer has tried to write.
type attempt struct {
	content omap.Hash
	pause   time.Duration
	next    time.Time
}

// Run writes addresses until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	attempts := map[api.Key]attempt{}
	again := time.NewTicker(period)
	defer again.Stop()
	for {
		if changes, err := w.look(ctx); err == nil {
			w.write(ctx, changes, attempts)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// look returns the changes that are to be written.
func (w *Writer) look(ctx context.Context) (allocation.Changes, error) {
	return loop.Look(ctx, w.mesh, w.changes.In)
}

// write writes some changes that it has not written just now.
func (w *Writer) write(ctx context.Context, changes allocation.Changes, attempts map[api.Key]attempt) {
	pending, written := map[api.Key]bool{}, 0
	for _, c := range changes.All() {
		pending[c.Key] = true
		was, now := attempts[c.Key], time.Now()
		if was.content == c.ContentHash() && now.Before(was.next) || written == atOnce || ctx.Err() != nil {
			continue
		}
		next := attempt{content: c.ContentHash(), pause: patience}
		if was.content == next.content {
			next.pause = min(2*was.pause, longest)
		}
		next.next = now.Add(next.pause)
		attempts[c.Key] = next
		if len(c.Full) > 0 {
			w.log.Warn("hosts have no address of their own, because the range of allocated addresses is used up; name addresses in spec.addresses, or set larger ranges",
				"object", c.Key.String(), "hosts", strings.Join(c.Full, ", "))
		}
		written++
		if err := w.target.WriteAddresses(ctx, c.Key, c.Has, c.Want); err != nil && ctx.Err() == nil {
			w.log.Warn("the addresses of an object cannot be written; it is tried again", "object", c.Key.String(), "error", err)
		}
	}
	for k := range attempts {
		if !pending[k] {
			delete(attempts, k)
		}
	}
}
