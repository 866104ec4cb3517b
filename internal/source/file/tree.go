package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/links"
)

// tree is what a walk over the directory found: the files to read, and which events concern them.
//
// Paths come in two kinds. A logical path is the root as the user wrote it with the names below it; files and problems
// are known by it. A real path has no symbolic links in it; the kernel reports events by it.
type tree struct {
	files       map[string]stamp    // logical: the configuration files
	dirs        map[string]bool     // logical: the directories walked
	failed      map[string]error    // logical: what could not be looked at
	logicalDirs map[string][]string // real directory → logical directories that stand for it
	links       map[string]bool     // real: the links on the way to something, and their targets
}

// stamp identifies the state of a file.
type stamp struct {
	info     fs.FileInfo
	reliable bool // the file was last changed long enough before it was read: any later change shows in info
}

// clockSlack is the coarsest step of file times that occurs. Two changes within it may look like one.
const clockSlack = 2 * time.Second

func newStamp(info fs.FileInfo, now time.Time) stamp {
	return stamp{info: info, reliable: now.Sub(info.ModTime()) > clockSlack}
}

// same reports whether a file that had the stamp surely has not changed.
func (s stamp) same(info fs.FileInfo) bool {
	return s.reliable && s.info != nil && os.SameFile(s.info, info) &&
		s.info.Size() == info.Size() && s.info.ModTime().Equal(info.ModTime())
}

// isConfig reports whether a file of this name, or path, is configuration. Hidden files and directories are not: Kubernetes keeps
// the versions of a mounted ConfigMap in such, and leads to them by links.
func isConfig(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return !isHidden(path)
	}
	return false
}

func isHidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// walker builds a tree. watch is called for each real directory before it is read, so that nothing that happens after
// the reading is missed.
type walker struct {
	*tree
	watch   func(dir string) error
	watched map[string]bool   // real directories
	seen    map[string]string // real directory → logical path under which it was walked
}

func newWalker(watch func(dir string) error) *walker {
	return &walker{
		tree: &tree{
			files: map[string]stamp{}, dirs: map[string]bool{}, failed: map[string]error{},
			logicalDirs: map[string][]string{}, links: map[string]bool{},
		},
		watch:   watch,
		watched: map[string]bool{},
		seen:    map[string]string{},
	}
}

// watchError is about a directory that cannot be watched.
type watchError struct{ err error }

func (e *watchError) Error() string { return e.err.Error() }

// skippedError is about something that is left out on purpose.
type skippedError struct{ reason string }

func (e *skippedError) Error() string { return e.reason }

// walk goes over everything below root, except the file skip, a real path. An error is about the root itself.
func (w *walker) walk(root, skip string) error {
	real, err := w.follow(root)
	if err != nil {
		return err
	}
	return w.directory(root, real, skip)
}

// follow resolves the links on the way to path and watches for their changes.
func (w *walker) follow(path string) (real string, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolve: %w", err)
	}
	real, over, err := links.Follow(abs)
	for _, p := range over {
		w.links[p] = true
		w.observe(filepath.Dir(p))
	}
	return real, err
}

// observe watches a real directory and notes if that is impossible.
func (w *walker) observe(dir string) {
	if w.watched[dir] {
		return
	}
	w.watched[dir] = true
	if err := w.watch(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.failed[dir] = &watchError{err}
	}
}

func (w *walker) directory(logical, real, skip string) error {
	if first, again := w.seen[real]; again {
		w.failed[logical] = &skippedError{fmt.Sprintf("is the same directory as %s, where it is read: ignored", first)}
		return nil
	}
	w.seen[real] = logical
	w.logicalDirs[real] = append(w.logicalDirs[real], logical)
	w.dirs[logical] = true
	w.observe(real)
	entries, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(logical, e.Name())
		if isHidden(e.Name()) {
			continue
		}
		if err := w.entry(path, filepath.Join(real, e.Name()), e, skip); err != nil {
			w.failed[path] = err
		}
	}
	return nil
}

func (w *walker) entry(logical, real string, e fs.DirEntry, skip string) error {
	mode := e.Type()
	if mode&fs.ModeSymlink != 0 {
		target, err := w.follow(real)
		if err != nil {
			if isConfig(e.Name()) {
				return err
			}
			return nil // a link to nothing may become anything: it is watched
		}
		real = target
	} else if !mode.IsDir() && !isConfig(e.Name()) {
		return nil
	}
	info, err := os.Lstat(real)
	switch {
	case real == skip:
		return nil
	case errors.Is(err, fs.ErrNotExist): // gone meanwhile
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return w.directory(logical, real, skip)
	case !isConfig(e.Name()):
		return nil
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	}
	w.files[logical] = stamp{info: info}
	return nil
}

// concerned returns the logical paths an event at a real path is about. structure says that it is about links or
// directories, so that the tree may look different now.
func (t *tree) affected(real string) (paths []string, structure bool) {
	if _, ok := t.logicalDirs[real]; ok {
		return nil, true
	}
	if t.links[real] {
		return nil, true
	}
	dir, name := filepath.Split(real)
	if isHidden(name) {
		return nil, false
	}
	for _, home := range t.logicalDirs[filepath.Clean(dir)] {
		paths = append(paths, filepath.Join(home, name))
	}
	return paths, false
}

// lostBelow reports whether path is, or is below, something that could not be looked at.
func (t *tree) failedAbove(path string) bool {
	for p := path; ; p = filepath.Dir(p) {
		switch t.failed[p].(type) {
		case nil, *watchError, *skippedError:
		default:
			return true
		}
		if p == filepath.Dir(p) {
			return false
		}
	}
}
