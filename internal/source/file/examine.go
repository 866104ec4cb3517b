package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
)

// If the root directory was removed and appears again, it is probably still being filled. It is read when there was no event for
// returnQuiet, or after returnPatience. Until then the last known objects are kept.
const (
	returnQuiet    = 100 * time.Millisecond
	returnPatience = 5 * time.Second
)

// examine checks a path for which there was an event.
func (r *run) examine(path string, now time.Time) {
	info, err := os.Lstat(path)
	switch {
	case r.tree.dirs[path] || r.tree.failed[path] != nil:
		r.structure = true
	case errors.Is(err, fs.ErrNotExist):
		if _, known := r.tree.files[path]; !known {
			r.gone(path, now)
			return
		}
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			r.structure = true // the directory of the file was removed, perhaps the root
			return
		}
		r.removed = append(r.removed, path)
	case err != nil, info.IsDir(), info.Mode()&fs.ModeSymlink != 0:
		r.structure = true
	case !isConfig(path):
	case !info.Mode().IsRegular():
		r.structure = true
	default:
		r.read(path, now)
	}
}

// read reads a configuration file.
func (r *run) read(path string, now time.Time) {
	delete(r.missing, path)
	delete(r.left, path)
	data, info, err := readFile(path, r.Quiet)
	switch {
	case errors.Is(err, errBusy), errors.Is(err, fs.ErrNotExist): // in the latter case it has just been removed
		r.fileBusy = true
		r.keepKnown(path)
		r.pending.add(path, now)
	case err != nil:
		r.tree.files[path] = stamp{}
		r.ledger.unreadable(path, unreadable(path, err))
		if transient(err) {
			r.pending.postpone(path, now.Add(r.Poll))
		}
	case len(data) == 0 && (r.ledger.hasClaims(path) || r.synced) && !r.stillEmpty(path, now):
		r.fileBusy = true
		r.keepKnown(path)
		r.pending.postpone(path, r.emptySince[path].Add(r.MaxWait))
	default:
		if len(data) > 0 {
			delete(r.emptySince, path)
		}
		r.tree.files[path] = newStamp(info, now)
		before := r.ledger.leavers(path)
		if again := r.ledger.read(path, data, now, info.ModTime(), r.replaced(path, info, len(data))); !again.IsZero() {
			r.pending.postpone(path, again)
		}
		r.lastRead[path] = info
		if len(before) == 0 {
			r.sayLeaving(path, r.ledger.leavers(path))
		}
	}
}

// replaced reports whether a file replaced the one that was read before and is whole: a rename or a changed symbolic link put it in
// place, and it was not written to since. An empty file was probably just created.
func (r *run) replaced(path string, info fs.FileInfo, size int) bool {
	last := r.lastRead[path]
	return r.watcher != nil && size > 0 && last != nil && !os.SameFile(last, info) && !r.written[path]
}

// keepKnown records a file that will be read later.
func (r *run) keepKnown(path string) {
	if _, ok := r.tree.files[path]; !ok {
		r.tree.files[path] = stamp{}
	}
}

// stillEmpty reports whether a file has been empty for so long that it is regarded as intended. Many programs truncate a file
// before they write it.
func (r *run) stillEmpty(path string, now time.Time) bool {
	since, ok := r.emptySince[path]
	if !ok {
		r.emptySince[path] = now
		return false
	}
	return now.Sub(since) >= r.MaxWait
}

// walk reads the whole tree and the settings of the mesh. It creates a new watcher, because the old one has wrong paths for
// directories that were moved or replaced.
func (r *run) walk(now time.Time) {
	r.unwatch()
	watcher, watchErr := r.newWatcher()
	r.watcher = watcher
	w := newWalker(func(dir string) error {
		if watchErr != nil {
			return watchErr
		}
		return r.watcher.Add(dir)
	})
	if watchErr != nil {
		r.watcher = nil
	}
	settings := map[string]bool{}
	for _, path := range []string{r.MeshConfig, r.NetworksConfig} {
		if path != "" {
			if real, err := w.follow(path); err == nil { // reading the file reports the error again
				settings[real] = true
			}
		}
	}
	r.mesh.read(r, now)
	r.networks.read(r, now)
	var err error
	if r.Dir != "" {
		err = w.walk(r.Dir, settings)
	}
	switch {
	case err != nil:
		r.absent, r.returned = true, time.Time{}
		w.files = r.tree.files
		r.treeProblems = []api.Problem{problem(r.Dir, api.Error, "the directory cannot be read: %v; %s", err, r.consequence(r.listed))}
		r.pending.postpone(structural, now.Add(r.Poll))
	case r.absent && r.listed && r.beingFilled(now):
		w.files = r.tree.files
		r.pending.postpone(structural, r.lastEvent.Add(returnQuiet))
	default:
		r.absent, r.returned, r.listed = false, time.Time{}, true
		r.compare(w.tree, now)
		r.treeProblems = r.explain(w.tree, now)
	}
	r.tree = w.tree
}

func (r *run) consequence(known bool) string {
	if known {
		return "the last content stays in use"
	}
	return "nothing is served before it can be"
}

// beingFilled reports whether a root that was removed and appeared again is probably still being filled.
func (r *run) beingFilled(now time.Time) bool {
	if r.returned.IsZero() {
		r.returned, r.lastEvent = now, now
	}
	return now.Sub(r.lastEvent) < returnQuiet && now.Sub(r.returned) < returnPatience
}

// compare reads the new and changed files of a tree, and removes files that are no longer in it.
func (r *run) compare(t *tree, now time.Time) {
	old := r.tree.files
	r.tree = t
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		before, known := old[path]
		switch {
		case r.pending.has(path): // it is being written and will be examined later
			t.files[path] = before
		case known && before.same(t.files[path].info):
			t.files[path] = before
		default:
			r.read(path, now)
		}
	}
	for path, before := range old {
		if _, ok := t.files[path]; ok {
			continue
		}
		if r.pending.has(path) || t.failedAbove(path) || r.hold(path, now) {
			t.files[path] = before
			continue
		}
		r.forget(path, now)
	}
	r.ledger.recall(t)
}

// explain reports files and directories that could not be read or watched as Problems, and schedules another attempt.
func (r *run) explain(t *tree, now time.Time) []api.Problem {
	var notes []api.Problem
	unwatched := 0
	for _, path := range slices.Sorted(maps.Keys(t.failed)) {
		err := t.failed[path]
		if e, ok := errors.AsType[*watchError](err); ok {
			if unwatched++; unwatched == 1 {
				notes = append(notes, problem(path, api.Warning,
					"cannot be watched: %v; changes are found by looking every %v (check whether fs.inotify.max_user_watches or max_user_instances is too low)", e.err, r.Poll))
				r.pending.postpone(structural, now.Add(r.Poll))
			}
			continue
		}
		if e, ok := errors.AsType[*skippedError](err); ok {
			notes = append(notes, problem(path, api.Warning, "%s", e.reason))
			continue
		}
		if transient(err) {
			r.pending.postpone(structural, now.Add(r.Poll))
		}
		if _, known := t.files[path]; known || isConfig(path) && !r.tree.dirs[path] {
			t.files[path] = stamp{}
			r.ledger.unreadable(path, unreadable(path, err))
			continue
		}
		notes = append(notes, problem(path, api.Error, "the directory cannot be read: %v; the last good objects below it stay in use", err))
	}
	return notes
}

// transient reports whether an error may disappear without a file event, such as too many open files or a file server that does
// not respond. A missing or forbidden file causes an event when it appears or becomes readable.
func transient(err error) bool {
	_, system := errors.AsType[syscall.Errno](err)
	return system && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

var errBusy = errors.New("the file is being written")

// largeError reports a file that exceeds the size limit.
type largeError struct{ size int64 }

func (e *largeError) Error() string { return fmt.Sprintf("%d bytes are too many", e.size) }

// readFile reads a file. It returns errBusy if the file was written within the quiet time or while it was read.
func readFile(path string, quiet time.Duration) (data []byte, info fs.FileInfo, err error) {
	info, err = os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would block until there is a writer
		return nil, nil, errors.New("it is not a regular file")
	}
	if age := time.Since(info.ModTime()); 0 <= age && age < quiet {
		return nil, nil, errBusy
	}
	if info.Size() > api.MaxFile {
		return nil, nil, &largeError{info.Size()}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	data, err = io.ReadAll(io.LimitReader(f, api.MaxFile+1))
	after, statErr := f.Stat()
	if err := errors.Join(err, statErr, f.Close()); err != nil {
		return nil, nil, err
	}
	if !os.SameFile(info, after) || !after.ModTime().Equal(info.ModTime()) || after.Size() != int64(len(data)) {
		return nil, nil, errBusy
	}
	return data, after, nil
}

// unreadable returns the Problem of a file that cannot be read; its objects are kept.
func unreadable(path string, err error) api.Problem {
	if large, ok := errors.AsType[*largeError](err); ok {
		return api.TooLarge(path, large.size)
	}
	return problem(path, api.Error, "cannot be read: %v; its last good objects stay in use", err)
}
