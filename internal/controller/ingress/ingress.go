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
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// Target is where addresses are written.
type Target interface {
	// WriteLoadBalancer replaces status.loadBalancer of an Ingress, if it differs. An object that is gone, or changes at
	// the same time, is no error: written is false then.
	WriteLoadBalancer(ctx context.Context, k api.Key, addresses []string) (written bool, err error)
}

const (
	// pause is the time to the next attempt to write a status, at first, and longest the longest one.
	pause   = 10 * time.Second
	longest = time.Minute
	// atOnce is how many objects are compared with the cluster after one look.
	atOnce = 50
)

// Writer writes addresses.
type Writer = schedule.Writes[selected.AgeKey, intern.List[string]]

// wish is what the statuses of some Ingresses are to say.
type wish struct {
	addresses intern.List[string]
	objects   []omap.Map[selected.AgeKey, omap.Unit]
}

func (w wish) equal(o wish) bool {
	return w.addresses == o.addresses && slices.EqualFunc(w.objects, o.objects, omap.Map[selected.AgeKey, omap.Unit].Equal)
}

// all returns the addresses for each Ingress.
func (w wish) all() iter.Seq2[selected.AgeKey, intern.List[string]] {
	return func(yield func(selected.AgeKey, intern.List[string]) bool) {
		for _, list := range w.objects {
			for k := range list.All() {
				if !yield(k, w.addresses) {
					return
				}
			}
		}
	}
}

// New returns a writer for a mesh whose loop does not run yet.
func New(mesh *loop.Loop, target Target, log *slog.Logger) *Writer {
	wishes := loop.Want(mesh, "ingressAddresses", wish.equal, func(r *query.Reader, _ *state.Tables, q *class.Queries) wish {
		return wish{q.Gateways.Addresses(r), q.Gateways.Counting(r)}
	})
	w := newWriter(target, log)
	w.Changed, w.Look = wishes.Changed(), func(ctx context.Context) (iter.Seq2[selected.AgeKey, intern.List[string]], error) {
		wanted, err := wishes.Look(ctx)
		return wanted.all(), err
	}
	return w
}

// newWriter returns a writer that looks at no mesh.
func newWriter(target Target, log *slog.Logger) *Writer {
	return &Writer{
		Compare: selected.AgeKey.Compare, Pauses: schedule.Pauses{First: pause, Longest: longest}, AtOnce: atOnce,
		Write: func(ctx context.Context, k selected.AgeKey, addresses intern.List[string]) (known bool, err error) {
			return target.WriteLoadBalancer(ctx, k.Key, addresses.Items())
		},
		Failed: func(k selected.AgeKey, err error) {
			log.Warn("the addresses of gateways cannot be written to an Ingress; it is tried again", "object", k.Key.String(), "error", err)
		},
	}
}
