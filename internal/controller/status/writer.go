package status

import (
	"context"
	"log/slog"
	"time"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/explain/live"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// Target is where statuses are written.
type Target interface {
	// Write makes the status of an object say s, if the object still has this generation and says something else. An object that is
	// gone or has another generation is no error: its next version has a status of its own.
	Write(ctx context.Context, k api.Key, generation int64, s Status) error
}

// Options of a writer.
type Options struct {
	// Mesh is a loop that does not run yet.
	Mesh    *loop.Loop
	Streams server.Lister
	Target  Target
	Log     *slog.Logger
}

const (
	// period is the time between two looks at the mesh.
	period = time.Second
	// patience is how long proxies may take before a status says that they have not acknowledged an object.
	patience = 3 * time.Second
	// longest is the longest time between two looks at an object that proxies do not acknowledge.
	longest = 30 * time.Second
	// atOnce is how many objects one look is about. It runs between two commits, which it must not delay.
	atOnce = 50
)

// Writer writes statuses.
type Writer struct {
	o        Options
	kept     *loop.Kept[class.Versions]
	problems state.Problems
	versions class.Versions
	// due are the objects whose status is to be looked at.
	due schedule.Agenda[api.Key]
}

// facts are the inputs of the status of an object.
type facts struct {
	key api.Key
	// generation is the generation of the latest version of the object, which may be refused. It is 0 for an object of a file.
	generation int64
	problems   []api.Problem
	live       live.Status
	// settled is true if waiting for proxies would change nothing.
	settled bool
}

// factsAbout returns the facts about an object; false if there is no version of it, in force or refused.
func factsAbout(v *loop.View, streams []server.Status, k api.Key) (facts, bool) {
	f := facts{key: k, problems: state.ProblemsOf(v.Problems, k)}
	var inForce bool
	f.live, inForce = live.Of(v, streams, k)
	f.generation, f.settled = f.live.Generation, f.live.Done()
	for _, p := range f.problems {
		if p.Refuses() {
			f.generation, f.settled = max(f.generation, p.Position.Generation), true
		}
	}
	return f, inForce || f.generation > 0
}

// New returns a writer.
func New(o Options) *Writer {
	return &Writer{o: o, kept: loop.Keep(o.Mesh, o.Mesh.Queries().Versions.Observe, class.All{})}
}

// Run writes statuses until ctx ends. It starts from nothing each time it is called: another replica may have written since the last call.
func (w *Writer) Run(ctx context.Context) {
	w.problems, w.versions, w.due = state.Problems{}, class.Versions{}, schedule.Agenda[api.Key]{Compare: api.Key.Compare}
	again := time.NewTicker(period)
	defer again.Stop()
	for {
		found, err := w.look(ctx)
		if err == nil {
			for _, f := range found {
				w.write(ctx, f)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// look finds the objects whose version or problems have changed, and returns the facts about some objects that are due.
func (w *Writer) look(ctx context.Context) ([]facts, error) {
	streams := w.o.Streams.Streams()
	type seen struct {
		problems state.Problems
		versions class.Versions
		facts    []facts
	}
	list := w.due.Take(atOnce)
	s, err := loop.Look(ctx, w.o.Mesh, func(v *loop.View) seen {
		s := seen{problems: v.Problems, versions: w.kept.In(v)}
		for _, k := range list {
			if f, ok := factsAbout(v, streams, k); ok {
				s.facts = append(s.facts, f)
			}
		}
		return s
	})
	if err != nil {
		for _, k := range list {
			w.due.At(k, time.Now())
		}
		return nil, err
	}
	known := map[api.Key]bool{}
	for _, f := range s.facts {
		known[f.key] = true
	}
	for _, k := range list {
		if !known[k] {
			w.due.Drop(k)
		}
	}
	w.follow(s.problems, s.versions)
	return s.facts, nil
}

// follow makes the objects due whose version or problems have changed.
func (w *Writer) follow(problems state.Problems, versions class.Versions) {
	for c := range omap.Diff(w.problems, problems) {
		if c.HasNew {
			w.touch(c.New.Object)
		} else {
			w.touch(c.Old.Object)
		}
	}
	for c := range omap.Diff(w.versions, versions) {
		if c.HasNew {
			w.touch(c.New.Key)
		}
	}
	w.problems, w.versions = problems, versions
}

func (w *Writer) touch(k api.Key) {
	if kind, ok := api.FindKind(k.Kind); ok && !kind.BuiltIn() {
		w.due.Touch(k)
	}
}

// write writes the status of an object, unless its proxies may still be about to acknowledge it.
func (w *Writer) write(ctx context.Context, f facts) {
	if f.generation == 0 { // it comes from a file
		w.due.Drop(f.key)
		return
	}
	now := time.Now()
	waited := now.Sub(w.due.Since(f.key))
	if !f.settled && waited < patience {
		w.due.At(f.key, now)
		return
	}
	err := w.o.Target.Write(ctx, f.key, f.generation, statusOf(f.problems, f.live))
	switch {
	case ctx.Err() != nil:
	case err == nil && f.settled:
		w.due.Drop(f.key)
		return
	case err != nil:
		w.o.Log.Warn("the status of an object cannot be written; it is tried again", "object", f.key.String(), "error", err)
	}
	w.due.At(f.key, now.Add(min(longest, max(period, waited/2))))
}
