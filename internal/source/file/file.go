// Package file is the source for a directory of configuration documents (--configDir) and the mesh configuration file.
//
// Every *.yaml, *.yml and *.json below the directory is read; names that begin with a dot are not. Changes are seen by
// watching directories, so atomic renames, symbolic links that are swapped (Kubernetes' ConfigMaps) and directories
// that come and go are seen like plain writes. What changes together arrives as one batch: see pending.go. What counts
// when documents are broken, missing or contradict each other: see ledger.go.
//
// Invariants:
//   - An object that was good once stays until the user has removed it: not because its document is broken, its file
//     unreadable or empty for a moment, or the whole directory gone. Each of these is a Problem.
//   - Bytes that say the same as before (touched, rewritten, reordered, commented, annotated) cause no events.
//   - A change of one file costs the reading of that file, and of that file's changed documents the decoding.
//
// Run works in the caller's goroutine; the watcher has one of its own, which ends before Run returns. The package must
// not import the store, state, views or xds.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/source"
)

// Options of a file source.
type Options struct {
	// Dir is the root: every *.yaml, *.yml and *.json below it is read. Empty for none.
	Dir string
	// MeshConfig is the file with the mesh configuration; empty for none, in which case no batch has a Mesh.
	MeshConfig string
	// Quiet is how long nothing must happen before a change is read (default 5 ms).
	Quiet time.Duration
	// MaxWait bounds the wait for that (default 50 ms). It is also how long a file must stay empty to be believed.
	MaxWait time.Duration
	// Poll is how often to look where watching is impossible (default 1 s).
	Poll time.Duration
	// Log receives what an operator may want to know (default: nothing).
	Log *slog.Logger
}

// Source reads and watches a directory.
type Source struct {
	o          Options
	newWatcher func() (*fsnotify.Watcher, error)
}

// New returns the source. Nothing is read before Run.
func New(o Options) *Source {
	o.Quiet = cmp.Or(o.Quiet, 5*time.Millisecond)
	o.MaxWait = cmp.Or(o.MaxWait, 50*time.Millisecond)
	o.Poll = cmp.Or(o.Poll, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{o: o, newWatcher: fsnotify.NewWatcher}
}

// Name is "file:" and the directory.
func (s *Source) Name() string { return "file:" + s.o.Dir }

// Run hands over batches until ctx is cancelled, and then returns nil: what goes wrong with files is the user's to
// know, as Problems, and may get right again.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	r := &run{
		Options: s.o, name: s.Name(), sink: sink, newWatcher: s.newWatcher,
		pending: newPending(s.o.Quiet, s.o.MaxWait), ledger: newLedger(), tree: newWalker(nil).tree,
		emptySince: map[string]time.Time{}, missing: map[string]time.Time{},
	}
	defer r.unwatch()
	r.structure = true
	r.settle(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Stop()
		if at, ok := r.pending.next(); ok {
			timer.Reset(time.Until(at))
		}
		var events chan fsnotify.Event
		var failures chan error
		if r.watcher != nil {
			events, failures = r.watcher.Events, r.watcher.Errors
		}
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if ok {
				r.event(e, time.Now())
			} else {
				r.eventsLost(errors.New("the watcher ended"))
			}
		case err, ok := <-failures:
			if !ok {
				err = errors.New("the watcher ended")
			}
			r.eventsLost(err)
		case <-timer.C:
			r.settle(time.Now())
		}
	}
}

// structural is the pending path that stands for the structure of the tree: directories and links. No file has it.
const structural = ""

// run is the state of a running source. Everything in it belongs to Run's goroutine.
type run struct {
	Options
	name       string
	sink       source.Sink
	newWatcher func() (*fsnotify.Watcher, error)

	watcher *fsnotify.Watcher // nil if there can be none
	pending *pending
	ledger  *ledger
	tree    *tree

	structure bool      // the tree must be walked
	listed    bool      // it was walked with success once
	absent    bool      // the root could not be read at the last walk
	returned  time.Time // when it could be read again; zero if that is not recent
	lastEvent time.Time
	synced    bool

	emptySince map[string]time.Time // files that were cut and are likely about to be written
	missing    map[string]time.Time // files that are gone, but held
	removed    []string             // files that are gone, as far as this round saw
	fileBusy   bool                 // this round saw a file that is being written

	treeProblems []api.Problem // about the tree
	mesh         mesh
}

// mesh is what is known of the mesh configuration file.
type mesh struct {
	sum      omap.Hash              // of the file's bytes
	good     *meshconfig.MeshConfig // the last good version
	changed  *meshconfig.MeshConfig // the same, if it was not handed over yet
	problems []api.Problem
}

// event takes in what the watcher saw.
func (r *run) event(e fsnotify.Event, now time.Time) {
	paths, structure := r.tree.affected(e.Name)
	if structure {
		r.pending.add(structural, now)
	}
	for _, path := range paths {
		// Of what is neither configuration nor a directory, writes do not matter.
		if _, known := r.tree.files[path]; known || isConfig(path) || !e.Has(fsnotify.Write) {
			r.pending.add(path, now)
		}
	}
	r.lastEvent = now
}

// lost is called when events may have been missed, which happens when more come than the kernel queues.
func (r *run) eventsLost(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		r.Log.Warn("watching configuration files failed; watching anew", "dir", r.Dir, "error", err)
		r.unwatch()
	}
	r.pending.add(structural, time.Now())
}

// settle looks at everything that is due and hands over what changed.
func (r *run) settle(now time.Time) {
	r.fileBusy = false
	for _, path := range r.pending.due(now) {
		if path == structural {
			r.structure = true
		} else {
			r.examine(path, now)
		}
	}
	if r.structure {
		r.structure = false
		r.walk(now)
	}
	for _, path := range r.removed {
		if _, known := r.tree.files[path]; known && !r.hold(path, now) {
			delete(r.tree.files, path)
			r.forget(path)
		}
	}
	r.removed = nil
	r.commit()
}

// hold reports whether a file that is gone stays for now: another one is being written, and may be what became of it.
func (r *run) hold(path string, now time.Time) bool {
	since, before := r.missing[path]
	switch {
	case r.pending.idle() && !r.fileBusy, before && now.Sub(since) >= busyLimit*r.MaxWait:
		return false
	case !before:
		r.missing[path] = now
	}
	r.pending.add(path, now)
	return true
}

// forget lets go of a file that is gone.
func (r *run) forget(path string) {
	delete(r.emptySince, path)
	delete(r.missing, path)
	r.ledger.remove(path)
}

// commit hands over a batch if there is something to tell.
func (r *run) commit() {
	ready := r.listed && (r.MeshConfig == "" || r.mesh.good != nil) && (r.synced || r.pending.idle())
	events, problems := r.ledger.commit(append(slices.Clip(r.treeProblems), r.mesh.problems...))
	b := source.Batch{
		Source: r.name, Events: events, Problems: problems, Synced: ready || r.synced, Mesh: r.mesh.changed,
	}
	if len(events) == 0 && len(problems) == 0 && b.Mesh == nil && b.Synced == r.synced {
		return
	}
	r.synced, r.mesh.changed = b.Synced, nil
	r.Log.Debug("configuration changed", "source", r.name, "objects", len(events), "problems", len(b.Problems),
		"mesh", b.Mesh != nil, "synced", b.Synced)
	r.sink.Apply(b)
}

func (r *run) unwatch() {
	if r.watcher == nil {
		return
	}
	if err := r.watcher.Close(); err != nil {
		r.Log.Warn("closing the file watcher failed", "dir", r.Dir, "error", err)
	}
	r.watcher = nil
}

// problem is a Problem about a file or directory as a whole.
func problem(path string, s api.Severity, format string, args ...any) api.Problem {
	return api.Problem{Position: api.Position{File: path}, Severity: s, Reason: fmt.Sprintf(format, args...)}
}
