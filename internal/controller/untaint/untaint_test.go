package untaint

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
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

// TestWrite: each node is written at once, and again after a pause that grows while it stays. One that fails keeps no other one from being written. A node
// that was gone in between is written at once.
func TestWrite(t *testing.T) {
	target := &written{}
	w := &Writer{target: target, log: slog.New(slog.DiscardHandler)}
	var attempts map[string]attempt
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at    time.Duration
		nodes []string
		want  []string
	}{
		{0, []string{"a", "fails"}, []string{"a", "fails"}},
		{pause / 2, []string{"a", "b", "fails"}, []string{"b"}},
		{pause, []string{"a", "b", "fails"}, []string{"a", "fails"}},
		{2 * pause, []string{"a"}, nil}, // the second pause is longer
		{3 * pause, []string{"a"}, []string{"a"}},
		{3*pause + 1, nil, nil},
		{3*pause + 2, []string{"a"}, []string{"a"}},
		{time.Hour, []string{"a"}, []string{"a"}},
	} {
		var nodes capture.Nodes
		for _, name := range c.nodes {
			nodes = omap.With(nodes, omap.Put(omap.Name(name), capture.Node{Name: name}))
		}
		target.names = nil
		if attempts = w.write(t.Context(), nodes, attempts, start.Add(c.at)); !slices.Equal(target.names, c.want) {
			t.Errorf("after %v: wrote %q, want %q", c.at, target.names, c.want)
		}
	}
	for range 20 {
		attempts = w.write(t.Context(), omap.With(capture.Nodes{}, omap.Put(omap.Name("a"), capture.Node{Name: "a"})), attempts, start.Add(24*time.Hour))
	}
	if p := attempts["a"].pause; p > longest {
		t.Errorf("the pause is %v", p)
	}
}
