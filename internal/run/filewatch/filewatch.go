// Package filewatch reports when files have changed that are read again as a whole, such as a certificate and its key. It
// watches their directories, and the directories of the symbolic links that lead to them.
//
// It can miss a change, so its users also read the files from time to time. Goroutines: none of its own; fsnotify has one per watcher,
// until Close.
package filewatch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pilotmesh/pilot/internal/run/links"
)

// quiet is how long nothing must change before files are read, and maxWait the longest time they are waited for. Files that belong
// together are often replaced one after the other.
const (
	quiet   = 100 * time.Millisecond
	maxWait = time.Second
)

// Watcher watches files. Its zero value with a Log is ready to use, by one goroutine.
type Watcher struct {
	Log     *slog.Logger
	watcher *fsnotify.Watcher
	dirs    map[string]bool
}

// Follow watches the directories of files, and no others any more.
func (w *Watcher) Follow(paths []string) {
	if len(paths) == 0 && w.watcher == nil {
		return
	}
	if w.watcher == nil {
		var err error
		if w.watcher, err = fsnotify.NewWatcher(); err != nil {
			w.Log.Warn("files of certificates cannot be watched; they are read from time to time", "error", err)
			w.watcher = nil
			return
		}
	}
	was := w.dirs
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
	for dir := range was {
		if !w.dirs[dir] {
			_ = w.watcher.Remove(dir) // it may be gone, which ends its watch, too
		}
	}
}

// Changed returns a channel that delivers when something has changed; nil if nothing is watched.
func (w *Watcher) Changed() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

// Failed returns a channel that delivers when changes may have been missed; nil if nothing is watched.
func (w *Watcher) Failed() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// Settle waits until nothing has changed for a moment. It is called after Changed has delivered.
func (w *Watcher) Settle(ctx context.Context) {
	limit, calm := time.NewTimer(maxWait), time.NewTimer(quiet)
	defer limit.Stop()
	defer calm.Stop()
	for {
		select {
		case <-w.watcher.Events:
			calm.Reset(quiet)
		case <-w.watcher.Errors: //nolint:errcheck // whatever failed, the files are read again
		case <-calm.C:
			return
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the watches.
func (w *Watcher) Close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing is read from it any more
	}
}

// maxFile is the size of the largest file that is read, in bytes.
const maxFile = 1 << 20

// Read reads a regular file of bounded size. A pipe does not block it.
func Read(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; write the content into one", path)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxFile:
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return b, nil
}
