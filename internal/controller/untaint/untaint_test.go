package untaint

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/view/capture"
)

// written are the nodes that were written. Writing the node "fails" gives an error.
type written struct{ names []string }

func (w *written) RemoveTaint(_ context.Context, node string) error {
	w.names = append(w.names, node)
	if node == "fails" {
		return errors.New("the API server is away")
	}
	return nil
}

// TestWrite: a node is written at once, and again while it keeps its taint. One that fails keeps no other one from being written.
func TestWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &written{}
		w := newWriter(target, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.Look = func(context.Context) (iter.Seq2[omap.Name, capture.Node], error) {
			var nodes capture.Nodes
			for _, name := range []string{"a", "fails"} {
				nodes = omap.With(nodes, omap.Put(omap.Name(name), capture.Node{Name: name}))
			}
			return nodes.All(), nil
		}
		w.Run(ctx)
		if !slices.Equal(target.names[:2], []string{"a", "fails"}) || len(target.names) < 80 || len(target.names) > 250 {
			t.Errorf("wrote %d times in an hour, at first %q", len(target.names), target.names[:2])
		}
	})
}
