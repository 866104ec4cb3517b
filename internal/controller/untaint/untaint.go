// Package untaint removes from nodes the taint that keeps pods away until a CNI plugin captures traffic there. A query (view/capture) decides which
// nodes these are; this package only writes.
//
// One replica writes: the leader among the replicas that do this work. A node that was written comes back from the cluster without the taint, and then
// needs no write any more. The taint is never set: the maker of nodes does that.
//
// Writer.Run is the only goroutine.
package untaint

import (
	"context"
	"log/slog"
	"time"

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
type Writer struct {
	mesh   *loop.Loop
	nodes  *loop.Kept[capture.Nodes]
	target Target
	log    *slog.Logger
}

// New returns a writer for a mesh whose loop does not run yet. namespace is the namespace of the agents of the plugin.
func New(mesh *loop.Loop, namespace string, target Target, log *slog.Logger) *Writer {
	return &Writer{mesh, loop.Keep(mesh, mesh.Queries().Captured.Observe, namespace), target, log}
}

// attempt is when a node was tried last.
type attempt struct {
	pause time.Duration
	next  time.Time
}

// Run removes taints until ctx ends. It starts from nothing each time: another replica may have written since the last call.
func (w *Writer) Run(ctx context.Context) {
	attempts := map[string]attempt{}
	again := time.NewTicker(pause)
	defer again.Stop()
	for {
		if nodes, err := loop.Look(ctx, w.mesh, w.nodes.In); err == nil {
			attempts = w.write(ctx, nodes, attempts, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-w.nodes.Changed():
		case <-again.C:
		}
	}
}

// write writes the nodes that it has not written just now, and returns the attempts at all present ones.
func (w *Writer) write(ctx context.Context, nodes capture.Nodes, attempts map[string]attempt, now time.Time) map[string]attempt {
	kept := map[string]attempt{}
	for _, n := range nodes.All() {
		was, tried := attempts[n.Name]
		if tried && now.Before(was.next) || ctx.Err() != nil {
			kept[n.Name] = was
			continue
		}
		next := attempt{pause: pause}
		if tried {
			next.pause = min(2*was.pause, longest)
		}
		next.next = now.Add(next.pause)
		kept[n.Name] = next
		if err := w.target.RemoveTaint(ctx, n.Name); err != nil && ctx.Err() == nil {
			w.log.Warn("a node keeps its taint although traffic is captured there, and pods stay away; it is tried again", "node", n.Name, "error", err)
		}
	}
	return kept
}
