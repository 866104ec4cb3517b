package secret

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/pilotmesh/pilot/internal/run/links"
)

// watches manages the watched directories: the directories of each file and of all symbolic links that lead to it. For a file that does
// not exist, the last existing directory on its path is watched.
type watches struct {
	newWatcher func() (*fsnotify.Watcher, error)
	log        *slog.Logger
	watcher    *fsnotify.Watcher // nil if there is none
	dirs       map[string]bool   // directories without symbolic links
	incomplete bool              // something cannot be watched
	logged     bool              // that something cannot be watched has been logged
}

// channels returns the channels of the watcher, or nil if there is none.
func (w *watches) channels() (chan fsnotify.Event, chan error) {
	if w.watcher == nil {
		return nil, nil
	}
	return w.watcher.Events, w.watcher.Errors
}

func (w *watches) close() {
	if w.watcher == nil {
		return
	}
	if err := w.watcher.Close(); err != nil {
		w.log.Debug("closing the watcher of certificate files", "error", err)
	}
	w.watcher, w.dirs = nil, nil
}

// follow resolves the path of each file of a secret, and watches its directories. A path that was resolved before its
// directories were watched may have changed since, so this is repeated until no directory is added.
func (w *watches) follow(s *fileSecret) {
	for range 8 { // each iteration follows at most one more link
		s.paths = map[string]bool{}
		added := false
		for _, files := range s.alternatives {
			for _, file := range files {
				abs, err := filepath.Abs(file)
				if err != nil {
					continue // reading the file fails too, and reports the error
				}
				_, over, _ := links.Follow(abs) // reading the file reports the error
				for _, path := range over {
					s.paths[path] = true
					added = w.add(filepath.Dir(path)) || added
				}
			}
		}
		if !added {
			return
		}
	}
}

// add watches a directory. It reports whether the directory was not watched before.
func (w *watches) add(dir string) bool {
	if w.dirs[dir] {
		return false
	}
	var err error
	if w.watcher == nil {
		if w.watcher, err = w.newWatcher(); err == nil {
			w.dirs = map[string]bool{}
		} else {
			w.watcher = nil
		}
	}
	if err == nil {
		err = w.watcher.Add(dir)
	}
	if err == nil {
		w.dirs[dir] = true
		return true
	}
	if errors.Is(err, fs.ErrNotExist) { // the directory was just removed; the next call finds where the path ends now
		return false
	}
	w.incomplete = true
	if !w.logged {
		w.logged = true
		w.log.Warn("certificate files cannot be watched; they are read once a second instead", "dir", dir, "error", err,
			"remedy", "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches")
	}
	return false
}

// ended reports whether an event says that a watched directory was removed or renamed, so that it is no longer watched.
func (w *watches) ended(e fsnotify.Event) bool {
	if !w.dirs[e.Name] || !e.Has(fsnotify.Remove) && !e.Has(fsnotify.Rename) {
		return false
	}
	delete(w.dirs, e.Name)
	if err := w.watcher.Remove(e.Name); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		w.log.Debug("ending the watch of a directory that is gone", "dir", e.Name, "error", err)
	}
	return true
}

// removeUnneeded stops watching directories that no secret needs.
func (w *watches) removeUnneeded(secrets map[string]*fileSecret) {
	needed := map[string]bool{}
	for _, s := range secrets {
		for path := range s.paths {
			needed[filepath.Dir(path)] = true
		}
	}
	for dir := range w.dirs {
		if needed[dir] {
			continue
		}
		delete(w.dirs, dir)
		if err := w.watcher.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
			w.log.Debug("ending the watch of a directory", "dir", dir, "error", err)
		}
	}
}
