// Package file is the source for a directory of configuration documents (--configDir), and for the files with the mesh
// configuration and the mesh networks.
//
// It reads every *.yaml, *.yml and *.json file below the directory, except names that begin with a dot. It watches directories,
// so that it also notices atomic renames, symbolic links that are replaced (as in mounted ConfigMaps), and directories that are
// created and removed. Changes that happen together form one batch; see pending.go. Which version of an object is used when
// documents are invalid, missing or duplicate is decided in ledger.go.
//
// Invariants:
//   - An object that was valid once is kept until the user has removed it. An invalid document, an unreadable or temporarily
//     empty file, or a missing root directory does not remove it. Each of these is a Problem.
//   - An access policy that was valid once survives restarts (Options.Kept); one that never was denies all requests to its workloads. Its
//     loss waits longer than other changes, unless its file was replaced: a file that is written in pieces misses it for a time (leaving.go).
//   - A change without effect (a touched, rewritten, reordered, commented or annotated document) causes no events.
//   - After a change of one file, only that file is read, and only its changed documents are decoded.
//
// Goroutines: Run works in the caller's goroutine. The file watcher has one of its own, which ends before Run returns.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// Options of a file source.
type Options struct {
	// Dir is the root directory: every *.yaml, *.yml and *.json file below it is read. Empty means none.
	Dir string
	// MeshConfig is the file with the mesh configuration. If it is empty, no batch has a Mesh.
	MeshConfig string
	// Cluster is true if there is a source of namespaces of a cluster, too, which the mesh configuration can select.
	Cluster bool
	// ClusterID is the ID of the cluster that the Services, pods and other objects of Kubernetes in the directory count for. If it is
	// empty, they are not read, because a source of a cluster reads them.
	ClusterID string
	// NetworksConfig is the file with the mesh networks. If it is empty, no batch has Networks.
	NetworksConfig string
	// Quiet is the time without further events after which a change is read (default 5 ms).
	Quiet time.Duration
	// MaxWait limits that wait (default 50 ms). It is also how long a file must be empty before its objects are removed.
	MaxWait time.Duration
	// PolicyWait is how long a file must be unchanged before access policies are withdrawn that are no longer in it (default 5 s).
	PolicyWait time.Duration
	// IgnoreRefused is true if refused access policies without a known good version have no effect, instead of substitutes that deny.
	IgnoreRefused bool
	// Kept, if not nil, keeps the last good versions of access policies.
	Kept Keeper
	// Poll is the interval at which files are checked that cannot be watched (default 1 s).
	Poll time.Duration
	// Log receives messages for operators (default: none).
	Log *slog.Logger
}

// Source reads and watches a directory.
type Source struct {
	o          Options
	newWatcher func() (*fsnotify.Watcher, error)
}

// New returns the source. It reads nothing before Run.
func New(o Options) *Source {
	o.Quiet = cmp.Or(o.Quiet, 5*time.Millisecond)
	o.MaxWait = cmp.Or(o.MaxWait, 50*time.Millisecond)
	o.PolicyWait = cmp.Or(o.PolicyWait, 5*time.Second)
	o.Poll = cmp.Or(o.Poll, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{o: o, newWatcher: fsnotify.NewWatcher}
}

// Name returns "file:" and the directory.
func (s *Source) Name() string { return "file:" + s.o.Dir }

// Run passes batches to sink until ctx is cancelled, and then returns nil. Errors of files are reported as Problems, not as Go
// errors, because the user can correct them.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	r := &run{
		Options: s.o, name: s.Name(), sink: sink, newWatcher: s.newWatcher,
		pending: newPending(s.o.Quiet, s.o.MaxWait), ledger: newLedger(waits{cutWaits * s.o.MaxWait, s.o.PolicyWait}), tree: newWalker(nil).tree,
		emptySince: map[string]time.Time{}, missing: map[string]time.Time{}, left: map[string]time.Time{},
		written: map[string]bool{}, lastRead: map[string]fs.FileInfo{},
		book: &kept.Book{}, inForce: map[api.Key]bool{},
		mesh: meshFile(s.o.MeshConfig, s.o.Cluster), networks: networksFile(s.o.NetworksConfig),
	}
	defer r.unwatch()
	r.ledger.ignoreRefused = s.o.IgnoreRefused
	r.ledger.dir, r.ledger.cluster = s.o.Dir, s.o.ClusterID
	r.load()
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

// cutWaits is how many times MaxWait a file whose last line does not end must be unchanged before an edit of its last policy counts.
const cutWaits = 4

// structural is a pseudo path in pending for the structure of the tree: its directories and links.
const structural = ""

// run is the state of a running source. Only Run's goroutine uses it.
type run struct {
	Options
	name       string
	sink       source.Sink
	newWatcher func() (*fsnotify.Watcher, error)

	watcher *fsnotify.Watcher // nil if no watcher could be created
	pending *pending
	ledger  *ledger
	tree    *tree

	structure bool      // the tree must be walked
	listed    bool      // the tree has been walked successfully once
	absent    bool      // the root could not be read at the last walk
	returned  time.Time // when the root became readable again; zero if that is not recent
	lastEvent time.Time
	synced    bool

	emptySince map[string]time.Time   // files that were truncated and will probably be written soon
	missing    map[string]time.Time   // files that are removed but kept for now; see hold
	written    map[string]bool        // files that were written in place since they have their name
	lastRead   map[string]fs.FileInfo // by file: its state when it was read
	left       map[string]time.Time   // removed files whose access policies stay in force for now
	removed    []string               // files that this round found removed
	fileBusy   bool                   // this round found a file that is being written

	book         *kept.Book       // the last good versions of access policies
	inForce      map[api.Key]bool // the access policies that were settled
	saveFailed   bool
	saveProblems [kept.Parts][]api.Problem
	loadProblems []api.Problem
	toldProblems []api.Problem // the problems of keeping versions that commit has passed on

	treeProblems []api.Problem // problems of the tree
	mesh         settings[*meshconfig.MeshConfig]
	networks     settings[*meshconfig.MeshNetworks]
}

// event processes an event of the watcher.
func (r *run) event(e fsnotify.Event, now time.Time) {
	paths, structure := r.tree.affected(e.Name)
	if structure {
		r.pending.add(structural, now)
	}
	for _, path := range paths {
		switch {
		case e.Has(fsnotify.Write):
			r.written[path] = true
		case e.Has(fsnotify.Create): // also the target of a rename
			delete(r.written, path)
		}
		// Writes to files that are neither configuration nor directories have no effect.
		if _, known := r.tree.files[path]; known || isConfig(path) || !e.Has(fsnotify.Write) {
			r.pending.add(path, now)
		}
	}
	r.lastEvent = now
}

// eventsLost handles an error of the watcher, after which events may be missing, such as an overflow of the kernel's queue.
func (r *run) eventsLost(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		r.Log.Warn("watching configuration files failed; trying again", "dir", r.Dir, "error", err)
		r.unwatch()
	}
	r.pending.add(structural, time.Now())
}

// settle examines everything that is due and passes the changes to the sink.
func (r *run) settle(now time.Time) {
	r.fileBusy = false
	for _, path := range r.pending.due(now) {
		switch path {
		case structural:
			r.structure = true
		case saving: // commit saves
		default:
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
			r.forget(path, now)
		}
	}
	r.removed = nil
	r.commit()
	if r.keep(now); !slices.Equal(r.keepProblems(), r.toldProblems) {
		r.commit()
	}
}

// hold reports whether the objects of a removed file are kept for now, because a file that is being written may replace it.
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

// forget removes the objects of a removed file. Its access policies stay in force for some time, because the file may be written again.
func (r *run) forget(path string, now time.Time) {
	delete(r.emptySince, path)
	delete(r.missing, path)
	delete(r.written, path)
	if policies := r.ledger.vanish(path); len(policies) > 0 {
		r.left[path] = now
		r.pending.postpone(path, now.Add(r.PolicyWait))
		r.sayLeaving(path, policies)
	}
}

// commit passes a batch to the sink if anything has changed.
func (r *run) commit() {
	ready := r.listed && r.mesh.known() && r.networks.known() && (r.synced || r.pending.idle())
	r.toldProblems = r.keepProblems()
	events, problems := r.ledger.commit(slices.Concat(r.treeProblems, r.mesh.problems, r.networks.problems, r.toldProblems))
	b := source.Batch{
		Source: r.name, Events: events, Problems: problems, Synced: ready || r.synced,
		Mesh: r.mesh.changed, Networks: r.networks.changed,
	}
	if len(events) == 0 && len(problems) == 0 && b.Mesh == nil && b.Networks == nil && b.Synced == r.synced {
		return
	}
	r.synced, r.mesh.changed, r.networks.changed = b.Synced, nil, nil
	r.Log.Debug("configuration changed", "source", r.name, "objects", len(events), "problems", len(b.Problems),
		"mesh", b.Mesh != nil, "networks", b.Networks != nil, "synced", b.Synced)
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

// problem returns a Problem about a file or directory as a whole.
func problem(path string, s api.Severity, format string, args ...any) api.Problem {
	return api.Problem{Position: api.Position{File: path}, Severity: s, Code: "file-unreadable", Reason: fmt.Sprintf(format, args...)}
}

// stateProblem is about the folder in which the last good versions of access policies are kept.
func stateProblem(format string, args ...any) api.Problem {
	p := problem("the state folder", api.Warning, format, args...)
	p.Code = "state-unwritable"
	return p
}
