// Package addresses writes the addresses that are allocated to ServiceEntries to their statuses, where all proxies and users find
// them. Queries (view/allocation) decide which addresses these are; this package only writes them.
//
// One replica writes: the leader. Addresses that it has written come back from the cluster as rows, and then need no write any more.
//
// Writer.Run is the only goroutine.
package addresses

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
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
	// patience is how long a change that was written may take to come back, and longest the longest time between two attempts to
	// write one.
	patience = 5 * time.Second
	longest  = time.Minute
	// atOnce is how many objects are written after one look, so that no written address is decided on rows that are much older.
	atOnce = 50
)

// Writer writes addresses.
type Writer = schedule.Writes[omap.Name, omap.Hash]

// New returns a writer of the addresses of a mesh whose loop does not run yet. A change is written until it is not wanted any more: its object comes back
// as a row that needs none.
func New(mesh *loop.Loop, target Target, log *slog.Logger) *Writer {
	kept := loop.Keep(mesh, mesh.Queries().Addresses.Observe, allocation.All{})
	var changes allocation.Changes
	return &Writer{
		Changed: kept.Changed(),
		Look: func(ctx context.Context) (_ iter.Seq2[omap.Name, omap.Hash], err error) {
			changes, err = kept.Look(ctx)
			return func(yield func(omap.Name, omap.Hash) bool) {
				for name, c := range changes.All() {
					if !yield(name, c.ContentHash()) {
						return
					}
				}
			}, err
		},
		Compare: cmp.Compare[omap.Name], Pauses: schedule.Pauses{First: patience, Longest: longest}, AtOnce: atOnce,
		Write: func(ctx context.Context, name omap.Name, _ omap.Hash) (known bool, err error) {
			c, _ := changes.Get(name)
			if len(c.Full) > 0 {
				log.Warn("hosts have no address of their own, because the range of allocated addresses is used up; name addresses in spec.addresses, or set larger ranges",
					"object", c.Key.String(), "hosts", strings.Join(c.Full, ", "))
			}
			return false, target.WriteAddresses(ctx, c.Key, c.Has, c.Want)
		},
		Failed: func(name omap.Name, err error) {
			log.Warn("the addresses of an object cannot be written; it is tried again", "object", string(name), "error", err)
		},
	}
}
