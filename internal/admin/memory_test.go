package admin

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
)

func problemsOf(list ...api.Problem) (m omap.Map[omap.Name, api.Problem]) {
	for _, p := range list {
		m = omap.With(m, omap.Put(omap.Name(p.OutputName()), p))
	}
	return m
}

func TestBoard(t *testing.T) {
	a := api.Problem{Object: api.Key{Kind: "A"}, Severity: api.Error, Reason: "a"}
	b := api.Problem{Object: api.Key{Kind: "B"}, Severity: api.Warning, Reason: "b"}
	board := NewBoard(nil)
	for revision, step := range []struct {
		now              []api.Problem
		since            []store.Revision
		errors, warnings int
	}{
		{nil, nil, 0, 0},
		{[]api.Problem{a}, []store.Revision{1}, 1, 0},
		{[]api.Problem{a, b}, []store.Revision{1, 2}, 1, 1},
		{[]api.Problem{b}, []store.Revision{2}, 0, 1},
		{[]api.Problem{a, b}, []store.Revision{4, 2}, 1, 1}, // gone and come again
		{nil, nil, 0, 0},
	} {
		board.Update(store.Revision(revision), problemsOf(step.now...))
		var since []store.Revision
		for _, p := range board.Problems() {
			since = append(since, p.Revision)
		}
		errors, warnings := board.count()
		if !slices.Equal(since, step.since) || errors != step.errors || warnings != step.warnings {
			t.Errorf("revision %d: since %v, %d errors, %d warnings; want %+v", revision, since, errors, warnings, step)
		}
	}
}

// TestFollow: each problem is reported once when it is raised, and once when it is mended, with the place of its object.
func TestFollow(t *testing.T) {
	reviews := api.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "reviews"}
	w := newWorld(t, shop, api.Problem{Object: reviews, Severity: api.Error, Reason: "one"})
	var list []Problem
	w.read("/debug/problemz", &list) // reading the page takes no problem away from Follow
	committed, told := make(chan struct{}), make(chan News)
	w.background(func(ctx context.Context) {
		_ = w.options.Board.Follow(ctx, w.loop, committed, func(news News) {
			select {
			case told <- news:
			case <-ctx.Done():
			}
		})
	})
	committed <- struct{}{}
	if news := <-told; len(news.Raised) != 1 || news.Raised[0].Reason != "one" || news.Raised[0].File != "mesh.yaml" || news.Raised[0].Line != 2 {
		t.Errorf("got %+v", news)
	}
	w.loop.Apply(source.Batch{Source: sourceName, Synced: true, Problems: []source.ProblemEvent{
		{Problem: api.Problem{Object: reviews, Severity: api.Warning, Reason: "two"}},
	}})
	if news := <-told; len(news.Raised) != 1 || len(news.Mended) != 0 || news.Raised[0].Reason != "two" { // found without being called
		t.Errorf("got %+v", news)
	}
	w.loop.Apply(source.Batch{Source: sourceName, Synced: true, Problems: []source.ProblemEvent{
		{Problem: api.Problem{Object: reviews, Severity: api.Warning, Reason: "two"}, Gone: true},
	}})
	news := <-told
	if len(news.Raised) != 0 || len(news.Mended) != 1 || news.Mended[0].Reason != "two" || news.Mended[0].Line != 2 || news.Mended[0].Since.IsZero() {
		t.Errorf("got %+v", news)
	}
}

func TestCommits(t *testing.T) {
	var c Commits
	if got := c.Last(); len(got) != 0 {
		t.Errorf("got %v before the first commit", got)
	}
	for i := range remembered + 10 {
		c.Observe(loop.Commit{Revision: store.Revision(i + 1), Duration: 1500 * time.Microsecond})
	}
	last := c.Last()
	if len(last) != remembered || last[0].Revision != remembered+10 || last[remembered-1].Revision != 11 {
		t.Errorf("%d commits, from %d to %d", len(last), last[0].Revision, last[len(last)-1].Revision)
	}
	if body, err := json.Marshal(last[0].Duration); err != nil || string(body) != "1.500" {
		t.Errorf("got %s, %v", body, err)
	}
}
