package secret

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/pilotmesh/pilot/internal/links"
)

// watches are the directories that are watched: those of all links on the way to a file, and of the file. A file that is
// not there is watched for where the way to it ends.
type watches struct {
	newWatcher func() (*fsnotify.Watcher, error)
	log        *slog.Logger
	watcher    *fsnotify.Watcher // nil if there is none
	dirs       map[string]bool   // real
	lame       bool              // something cannot be watched
	told       bool              // the log says so
}

// channels are those of the watcher, nil if there is none.
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

// follow finds the way to each file of a secret, and watches it. A way that was found before its directories were
// watched may have changed since, so it is found again until nothing new is watched.
func (w *watches) follow(s *fileSecret) {
	for range 8 { // each time is one link deeper at most
		s.over = map[string]bool{}
		added := false
		for _, files := range s.alternatives {
			for _, file := range files {
				abs, err := filepath.Abs(file)
				if err != nil {
					continue // reading it fails too, and says why
				}
				_, over, _ := links.Follow(abs) // as above
				for _, path := range over {
					s.over[path] = true
					added = w.add(filepath.Dir(path)) || added
				}
			}
		}
		if !added {
			return
		}
	}
}

// add watches a directory and reports whether that is new.
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
	if errors.Is(err, fs.ErrNotExist) { // it went away just now: the next look finds where the way ends
		return false
	}
	w.lame = true
	if !w.told {
		w.told = true
		w.log.Warn("certificate files cannot be watched; they are read once a second instead", "dir", dir, "error", err,
			"remedy", "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches")
	}
	return false
}

// ended reports whether the event says that a watched directory is gone or renamed: it is not watched any more.
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

// only ends the watches of directories that no secret needs.
func (w *watches) only(secrets map[string]*fileSecret) {
	needed := map[string]bool{}
	for _, s := range secrets {
		for path := range s.over {
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
