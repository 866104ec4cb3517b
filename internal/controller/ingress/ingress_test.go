package ingress

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// written are the names of the Ingresses that were written. Writing one of fails gives an error.
type written struct {
	names []string
	fails []string
}

func (w *written) WriteLoadBalancer(_ context.Context, k api.Key, _ []string) (bool, error) {
	w.names = append(w.names, k.Name)
	if slices.Contains(w.fails, k.Name) {
		return false, errors.New("the API server is away")
	}
	return true, nil
}

// TestWrite: each Ingress is written once for the same addresses, and again for others. One that fails is not tried again at once, and
// does not keep others from being written. An Ingress that is made again under its name is another one.
func TestWrite(t *testing.T) {
	list := func(created int64, names ...string) (l []omap.Map[selected.AgeKey, omap.Unit]) {
		var m omap.Map[selected.AgeKey, omap.Unit]
		for _, name := range names {
			m = omap.With(m, omap.Put(selected.AgeKey{Created: created, Key: api.Key{Kind: "Ingress", Name: name}}, omap.Unit{}))
		}
		return append(l, m)
	}
	one, two := intern.Of("192.0.2.1"), intern.Of("192.0.2.2")
	synctest.Test(t, func(t *testing.T) {
		target := &written{fails: []string{"b"}}
		w := newWriter(target, slog.New(slog.DiscardHandler))
		var wanted wish
		changed, ended := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		w.Changed, w.Look = changed, func(context.Context) (iter.Seq2[selected.AgeKey, intern.List[string]], error) {
			return wanted.all(), nil
		}
		go func() { w.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		for _, c := range []struct {
			name   string
			wanted wish
			want   []string
		}{
			{"the first look", wish{one, list(1, "a", "b", "c")}, []string{"a", "b", "c"}},
			{"the same again", wish{one, list(1, "a", "b", "c")}, nil},
			{"an Ingress more", wish{one, list(1, "a", "b", "c", "d")}, []string{"d"}},
			{"other addresses", wish{two, list(1, "a", "b")}, []string{"a", "b"}},
			{"made again", wish{two, list(2, "a")}, []string{"a"}},
			{"none", wish{two, nil}, nil},
			{"back", wish{two, list(2, "a")}, []string{"a"}},
		} {
			synctest.Wait()
			target.names, wanted = nil, c.wanted
			changed <- struct{}{}
			synctest.Wait()
			if !slices.Equal(target.names, c.want) {
				t.Errorf("%s: wrote %q, want %q", c.name, target.names, c.want)
			}
		}
	})
}
