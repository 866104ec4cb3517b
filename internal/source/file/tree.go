package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/run/links"
)

// tree is the result of a walk over the directory: the files to be read, and the paths of events that concern them.
//
// A logical path begins with the root as the user wrote it; files and problems have logical paths. A real path contains no
// symbolic links; events have real paths.
type tree struct {
	files       map[string]stamp    // the configuration files, by logical path
	dirs        map[string]bool     // the directories that were walked, by logical path
	failed      map[string]error    // errors of reading or watching, by logical path
	logicalDirs map[string][]string // by real directory: the logical directories that refer to it
	links       map[string]bool     // real paths of the links on the way to files and directories, and of their targets
}

// stamp identifies the state of a file.
type stamp struct {
	info     fs.FileInfo
	reliable bool // the last change was long enough before the read, so that every later change changes info
}

// clockSlack is the coarsest resolution of file times. Two changes within it may have equal times.
const clockSlack = 2 * time.Second

func newStamp(info fs.FileInfo, now time.Time) stamp {
	return stamp{info: info, reliable: now.Sub(info.ModTime()) > clockSlack}
}

// same reports whether a file is certainly unchanged since the stamp was made.
func (s stamp) same(info fs.FileInfo) bool {
	return s.reliable && s.info != nil && os.SameFile(s.info, info) &&
		s.info.Size() == info.Size() && s.info.ModTime().Equal(info.ModTime())
}

// isConfig reports whether a path has the name of a configuration file. Hidden files and directories are no configuration:
// Kubernetes stores the versions of a mounted ConfigMap in hidden directories and links to them.
func isConfig(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return !isHidden(path)
	}
	return false
}

func isHidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// walker builds a tree. It calls watch for each real directory before it reads the directory, so that no later change is missed.
type walker struct {
	*tree
	watch   func(dir string) error
	watched map[string]bool   // real directories that are watched
	seen    map[string]string // by real directory: the logical path under which it was walked
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

// watchError reports a directory that cannot be watched.
type watchError struct{ err error }

func (e *watchError) Error() string { return e.err.Error() }

// skippedError reports something that is skipped deliberately.
type skippedError struct{ reason string }

func (e *skippedError) Error() string { return e.reason }

// walk walks everything below root, except the files with the real paths in skip. It returns an error if root cannot be read.
func (w *walker) walk(root string, skip map[string]bool) error {
	real, err := w.follow(root)
	if err != nil {
		return err
	}
	return w.directory(root, real, skip)
}

// follow resolves the links in path and watches their directories.
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

// observe watches a real directory, and records an error.
func (w *walker) observe(dir string) {
	if w.watched[dir] {
		return
	}
	w.watched[dir] = true
	if err := w.watch(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.failed[dir] = &watchError{err}
	}
}

func (w *walker) directory(logical, real string, skip map[string]bool) error {
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

func (w *walker) entry(logical, real string, e fs.DirEntry, skip map[string]bool) error {
	mode := e.Type()
	if mode&fs.ModeSymlink != 0 {
		target, err := w.follow(real)
		if err != nil {
			if isConfig(e.Name()) {
				return err
			}
			return nil // the target may appear later, so its directory is watched
		}
		real = target
	} else if !mode.IsDir() && !isConfig(e.Name()) {
		return nil
	}
	info, err := os.Lstat(real)
	switch {
	case skip[real]:
		return nil
	case errors.Is(err, fs.ErrNotExist): // it was removed after the directory was read
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

// affected returns the logical paths that an event at a real path concerns. structure reports that the event concerns links or
// directories, so the tree may have changed.
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

// failedAbove reports whether path, or a directory above it, could not be read.
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
