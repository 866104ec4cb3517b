package file

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
)

// batches is a sink with room for all a test makes.
type batches chan source.Batch

func (c batches) Apply(b source.Batch) { c <- b }

// rig is a source whose watcher the test controls.
type rig struct {
	t        *testing.T
	path     string
	batches  batches
	watchers chan *fsnotify.Watcher
	last     source.Batch
	problems []api.Problem // that the source has now
}

func newRig(t *testing.T, newWatcher func() (*fsnotify.Watcher, error)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, path: filepath.Join(dir, "a.yaml"), batches: make(batches, 1000), watchers: make(chan *fsnotify.Watcher, 1000)}
	r.write(1)
	s := New(Options{Dir: dir, Poll: 2 * time.Millisecond})
	s.newWatcher = func() (*fsnotify.Watcher, error) {
		w, err := newWatcher()
		r.watchers <- w
		return w, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, r.batches); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	r.until("synced", func() bool { return r.last.Synced })
	return r
}

func (r *rig) write(version int) {
	r.t.Helper()
	if err := os.WriteFile(r.path, []byte(doc{"a", version, "good"}.text()), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case r.last = <-r.batches:
			for _, p := range r.last.Problems {
				r.problems = slices.DeleteFunc(r.problems, func(o api.Problem) bool { return o == p.Problem })
				if !p.Gone {
					r.problems = append(r.problems, p.Problem)
				}
			}
			if holds() {
				return
			}
		case <-deadline:
			r.t.Fatalf("not %s", what)
		}
	}
}

// TestPolling runs without a watcher, as where there are too many of them.
func TestPolling(t *testing.T) {
	r := newRig(t, func() (*fsnotify.Watcher, error) { return nil, os.ErrPermission })
	if p := r.problems; len(p) != 1 || p[0].Severity != api.Warning {
		t.Errorf("problems %v", p)
	}
	r.write(2)
	r.until("edited", func() bool { return len(r.last.Events) == 1 })
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.until("removed", func() bool { return len(r.last.Events) == 1 && r.last.Events[0].Object == nil })
}

// TestMissedEvents makes a change that the watcher does not see, and then the errors that report the loss.
func TestMissedEvents(t *testing.T) {
	r := newRig(t, fsnotify.NewWatcher)
	for i, missed := range []error{fsnotify.ErrEventOverflow, os.ErrInvalid, fsnotify.ErrEventOverflow} {
		w := <-r.watchers
		for _, dir := range w.WatchList() {
			if err := w.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
		r.write(2 + i)
		w.Errors <- missed
		r.until("edited", func() bool { return len(r.last.Events) == 1 })
	}
}

// TestTooManyOpenFiles: a file that cannot be read for a reason whose end causes no event is read again.
func TestTooManyOpenFiles(t *testing.T) {
	r := newRig(t, fsnotify.NewWatcher)
	next := filepath.Join(filepath.Dir(r.path), ".a.yaml")
	if err := os.WriteFile(next, []byte(doc{"a", 2, "good"}.text()), 0o644); err != nil {
		t.Fatal(err)
	}
	func() {
		var was syscall.Rlimit
		limit := func(l syscall.Rlimit) {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		limit(syscall.Rlimit{Cur: 1, Max: was.Max})
		defer limit(was)
		if err := os.Rename(next, r.path); err != nil {
			t.Fatal(err)
		}
		r.until("a problem", func() bool { return len(r.problems) == 1 })
	}()
	r.until("healthy", func() bool { return len(r.problems) == 0 })
}
