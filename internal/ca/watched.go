package ca

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pilotmesh/pilot/internal/links"
)

// quiet is how long nothing must change before files are read, and maxWait the longest time they are waited for. The files of one
// authority are often replaced one after the other.
const (
	quiet   = 100 * time.Millisecond
	maxWait = time.Second
)

// watched watches files, and the symbolic links that lead to them. What it misses is found when the files are read without a sign.
type watched struct {
	log     *slog.Logger
	watcher *fsnotify.Watcher
	dirs    map[string]bool
}

// follow watches the directories of files.
func (w *watched) follow(paths []string) {
	if len(paths) == 0 {
		return
	}
	if w.watcher == nil {
		var err error
		if w.watcher, err = fsnotify.NewWatcher(); err != nil {
			w.log.Warn("files of certificates cannot be watched; they are read from time to time", "error", err)
			w.watcher = nil
			return
		}
	}
	w.dirs = map[string]bool{}
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			continue
		}
		_, over, _ := links.Follow(abs) // reading the file reports the error
		for _, step := range over {
			dir := filepath.Dir(step)
			if !w.dirs[dir] && w.watcher.Add(dir) == nil { // adding a directory again has no effect
				w.dirs[dir] = true
			}
		}
	}
}

// changed returns a channel that delivers when something has changed; nil if nothing is watched.
func (w *watched) changed() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

// failed returns a channel that delivers when changes may have been missed; nil if nothing is watched.
func (w *watched) failed() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// settle waits until nothing has changed for a moment.
func (w *watched) settle(ctx context.Context) {
	limit, calm := time.NewTimer(maxWait), time.NewTimer(quiet)
	defer limit.Stop()
	defer calm.Stop()
	for {
		select {
		case <-w.watcher.Events:
			calm.Reset(quiet)
		case <-w.watcher.Errors:
		case <-calm.C:
			return
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *watched) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing is read from it any more
	}
}
