// Package ingress writes to the statuses of Ingresses at which addresses the gateways that serve them are reached. A query
// (view/gateway) decides which addresses these are; this package only writes them.
//
// One replica writes: the leader. It compares each Ingress with its cluster once, and again when the addresses change. An edit of the
// status by another writer stays until then.
//
// Writer.Run is the only goroutine.
package ingress

import (
	"context"
	"log/slog"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Target is where addresses are written.
type Target interface {
	// WriteLoadBalancer replaces status.loadBalancer of an Ingress, if it differs. An object that is gone, or changes at
	// the same time, is no error: written is false then.
	WriteLoadBalancer(ctx context.Context, k api.Key, addresses []string) (written bool, err error)
}

const (
	// period is the time between two looks at the mesh, and pause between two attempts to write a status.
	period = time.Second
	pause  = 30 * time.Second
	// atOnce is how many objects are compared with the cluster after one look.
	atOnce = 50
)

// Writer writes addresses.
type Writer struct {
	Mesh   loop.Inspector
	Target Target
	Log    *slog.Logger
}

// wish is what the statuses of some Ingresses are to say.
type wish struct {
	addresses intern.List[string]
	objects   []omap.Map[selected.AgeKey, omap.Unit]
}

// attempt is what the writer wrote last to an Ingress. next is when it tries again; zero if it succeeded.
type attempt struct {
	addresses intern.List[string]
	next      time.Time
}

// Run writes addresses until ctx ends. It starts from nothing each time: another replica may have written since the last call.
func (w *Writer) Run(ctx context.Context) {
	done := map[selected.AgeKey]attempt{}
	again := time.NewTicker(period)
	defer again.Stop()
	for {
		if wanted, err := w.look(ctx); err == nil {
			done = w.write(ctx, wanted, done)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

func (w *Writer) look(ctx context.Context) (wish, error) {
	return loop.Look(ctx, w.Mesh, func(v *loop.View) wish {
		r := v.Graph.Glance()
		return wish{v.Queries.Gateways.Addresses(r), v.Queries.Gateways.Counting(r)}
	})
}

// write writes the addresses to Ingresses that have not got them yet, and returns the attempts for all present Ingresses.
func (w *Writer) write(ctx context.Context, wanted wish, done map[selected.AgeKey]attempt) map[selected.AgeKey]attempt {
	kept, tried := map[selected.AgeKey]attempt{}, 0
	for _, list := range wanted.objects {
		for k := range list.All() {
			was, known := done[k]
			same := known && was.addresses == wanted.addresses
			if same && (was.next.IsZero() || time.Now().Before(was.next)) || tried == atOnce || ctx.Err() != nil {
				if known {
					kept[k] = was
				}
				continue
			}
			tried++
			now := attempt{addresses: wanted.addresses}
			written, err := w.Target.WriteLoadBalancer(ctx, k.Key, wanted.addresses.Items())
			if err != nil || !written {
				now.next = time.Now().Add(pause)
			}
			if err != nil && ctx.Err() == nil {
				w.Log.Warn("the addresses of gateways cannot be written to an Ingress; it is tried again", "object", k.Key.String(), "error", err)
			}
			kept[k] = now
		}
	}
	return kept
}
