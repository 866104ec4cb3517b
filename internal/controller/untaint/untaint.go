// Package untaint removes from nodes the taint that keeps pods away until a CNI plugin captures traffic there. A query (view/capture) decides which
// nodes these are; this package only writes.
//
// One replica writes: the leader among the replicas that do this work. A node that was written comes back from the cluster without the taint, and then
// needs no write any more. The taint is never set: the maker of nodes does that.
//
// Writer.Run is the only goroutine.
package untaint

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/view/capture"
)

// Target is where nodes are written.
type Target interface {
	// RemoveTaint removes the taint from a node, and leaves its other taints. A node that is gone, has no such taint, or changes at the same time is no
	// error: the caller decides again from the next rows.
	RemoveTaint(ctx context.Context, node string) error
}

const (
	// pause is the time to the next attempt at a node that keeps its taint, at first, and longest the longest one.
	pause   = time.Second
	longest = time.Minute
)

// Writer removes taints.
type Writer = schedule.Writes[omap.Name, capture.Node]

// New returns a writer for a mesh whose loop does not run yet. namespace is the namespace of the agents of the plugin.
func New(mesh *loop.Loop, namespace string, target Target, log *slog.Logger) *Writer {
	nodes, w := loop.Keep(mesh, mesh.Queries().Captured.Observe, namespace), newWriter(target, log)
	w.Changed, w.Look = nodes.Changed(), func(ctx context.Context) (iter.Seq2[omap.Name, capture.Node], error) {
		list, err := nodes.Look(ctx)
		return list.All(), err
	}
	return w
}

// newWriter returns a writer that looks at no mesh. A node is written until it is not wanted any more.
func newWriter(target Target, log *slog.Logger) *Writer {
	return &Writer{
		Compare: cmp.Compare[omap.Name], Pauses: schedule.Pauses{First: pause, Longest: longest},
		Write: func(ctx context.Context, _ omap.Name, n capture.Node) (known bool, err error) {
			return false, target.RemoveTaint(ctx, n.Name)
		},
		Failed: func(node omap.Name, err error) {
			log.Warn("a node keeps its taint although traffic is captured there, and pods stay away; it is tried again", "node", string(node), "error", err)
		},
	}
}
