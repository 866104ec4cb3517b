package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Delay between a change and reading the files. They are read when no further change has happened for quiet, because a
// certificate and its key are often written one after the other, and at the latest after maxWait.
const (
	quiet   = 50 * time.Millisecond
	maxWait = 500 * time.Millisecond
)

// Intervals at which files are read without a change. Some changes create no event, such as a renamed ancestor directory or a
// write by another host to a shared file system. The second interval is used while something cannot be watched.
const (
	watchedPoll   = 30 * time.Second
	unwatchedPoll = time.Second
)

// maxFile is the size of the largest file that is read, in bytes. A system's CA bundle has about 250 KB.
const maxFile = 4 << 20

// Files is the provider of secrets from files.
type Files struct {
	board *Board
	log   *slog.Logger
	// Except reports whether a secret comes from another provider; nil if none does.
	Except     func(name string) bool
	newWatcher func() (*fsnotify.Watcher, error)
	// trusted delivers roots in addition to the roots of the mesh.
	trusted anchors
}

// NewFiles returns a provider for a board.
func NewFiles(b *Board, log *slog.Logger) *Files {
	return &Files{board: b, log: log, newWatcher: fsnotify.NewWatcher, trusted: newAnchors()}
}

// Run watches and reads the files of the secrets on the board until ctx is cancelled.
func (f *Files) Run(ctx context.Context) error {
	r := &reader{Files: f, secrets: map[string]*fileSecret{}, dirty: map[string]bool{}}
	r.watches.newWatcher, r.watches.log = f.newWatcher, f.log
	defer r.watches.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		view := f.board.View()
		r.follow(view)
		timer.Reset(time.Until(r.due()))
		events, failures := r.watches.channels()
		select {
		case <-ctx.Done():
			return nil
		case <-view.Next:
		case e, ok := <-events:
			if !ok {
				r.eventsLost(errors.New("the watcher ended"))
			} else {
				r.event(e, time.Now())
			}
		case r.anchors = <-f.trusted:
			if r.secrets[meshRoots] != nil {
				r.readSecret(meshRoots)
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

// reader is the state of Files.Run, and is used by its goroutine only.
type reader struct {
	*Files
	watches watches
	secrets map[string]*fileSecret
	anchors []byte // roots in addition to the roots of the mesh

	dirty        map[string]bool // the secrets to be read again
	first, last  time.Time       // times of the first and the last change since dirty was empty
	lastFullRead time.Time       // when all files were read last
}

// fileSecret is a secret whose files are watched.
type fileSecret struct {
	sources
	paths  map[string]bool // paths without symbolic links; a change of one may change the secret
	posted string          // the content of the last Post
}

// follow adds the secrets that are new in the view, and removes secrets that are no longer in it.
func (r *reader) follow(v *View) {
	now := time.Now()
	if len(r.secrets) == 0 {
		r.lastFullRead = now
	}
	for name := range v.Entries {
		if r.secrets[name] != nil || r.Except != nil && r.Except(name) {
			continue
		}
		if s, err := parse(name); err == nil {
			r.secrets[name] = &fileSecret{sources: s}
			r.readSecret(name)
		}
	}
	gone := false
	for name := range r.secrets {
		if _, wanted := v.Entries[name]; !wanted {
			delete(r.secrets, name)
			delete(r.dirty, name)
			gone = true
		}
	}
	if gone {
		r.watches.removeUnneeded(r.secrets)
	}
}

// due returns when files have to be read next.
func (r *reader) due() time.Time {
	poll := watchedPoll
	if r.watches.incomplete {
		poll = unwatchedPoll
	}
	at := r.lastFullRead.Add(poll)
	if len(r.dirty) == 0 {
		return at
	}
	for _, other := range []time.Time{r.last.Add(quiet), r.first.Add(maxWait)} {
		if other.Before(at) {
			at = other
		}
	}
	return at
}

// event processes an event of the watcher.
func (r *reader) event(e fsnotify.Event, now time.Time) {
	all := r.watches.ended(e)
	for name, s := range r.secrets {
		if all || s.paths[e.Name] {
			r.touch(name, now)
		}
	}
}

func (r *reader) touch(name string, now time.Time) {
	if len(r.dirty) == 0 {
		r.first = now
	}
	r.dirty[name], r.last = true, now
}

// eventsLost handles an error of the watcher, after which events may be missing.
func (r *reader) eventsLost(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		r.log.Warn("watching certificate files failed; starting again", "error", err)
		r.watches.close()
	}
	for name := range r.secrets {
		r.touch(name, time.Now())
	}
}

// settle reads the secrets that are due: the dirty ones, or all of them if none is dirty.
func (r *reader) settle(now time.Time) {
	if len(r.dirty) == 0 {
		for name := range r.secrets {
			r.dirty[name] = true
		}
		r.lastFullRead = now
		r.watches.incomplete = false // watching is tried again
	}
	for name := range r.dirty {
		r.readSecret(name)
	}
	clear(r.dirty)
	r.watches.removeUnneeded(r.secrets)
}

// readSecret reads the files of a secret and posts the result if it has changed.
func (r *reader) readSecret(name string) {
	s := r.secrets[name]
	r.watches.follow(s)
	var more []byte
	if name == meshRoots {
		more = r.anchors
	}
	a, err := s.read(name, more)
	if err != nil {
		a = Answer{Problem: err.Error()}
	}
	said := a.version + "\n" + a.Problem + "\n" + a.Remark
	if said == s.posted {
		return
	}
	s.posted = said
	r.board.Post(name, a)
}

// read builds the secret from its files. Roots get some more.
func (s *fileSecret) read(name string, more []byte) (Answer, error) {
	files := s.choose()
	if files == nil {
		return Answer{}, s.noFile(name)
	}
	var data [2][]byte
	for i, file := range files {
		var err error
		if data[i], err = readFile(file); err != nil {
			return Answer{}, err
		}
	}
	var a Answer
	var err error
	if s.pair {
		a, err = makePair(name, files, data[0], data[1])
	} else {
		if len(more) > 0 {
			data[0] = slices.Concat(data[0], []byte("\n"), more)
		}
		a, err = makeRoots(name, files[0], data[0], nil)
	}
	a.Files = files
	return a, err
}

// choose returns the first alternative with an existing file, or nil if there are several and none exists.
func (s *fileSecret) choose() []string {
	if len(s.alternatives) == 1 {
		return s.alternatives[0]
	}
	for _, files := range s.alternatives {
		for _, file := range files {
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				return files
			}
		}
	}
	return nil
}

// noFile returns an error that says that no alternative exists.
func (s *fileSecret) noFile(name string) error {
	var places []string
	for _, files := range s.alternatives {
		places = append(places, strings.Join(files, " with "))
	}
	what, remedy := "bundle of roots", "install the package ca-certificates, or name a file (caCertificates)"
	switch name {
	case workload:
		what, remedy = "workload certificate", "mount one there, or call the control plane over TLS: its certificate authority then gives one"
	case meshRoots:
		what, remedy = "file with the mesh's roots", "mount one there, or call the control plane over TLS: its certificate authority then gives them"
	}
	return fmt.Errorf("there is no %s at %s; %s", what, strings.Join(places, ", "), remedy)
}

// readFile reads a regular file. It does not block on pipes and does not read devices.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; mount or write it there, and it is used", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; make it readable for the user that the proxy runs as", err)
	case err != nil:
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; name one that has PEM in it", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, and the most is %d; name one that has nothing but PEM in it", path, info.Size(), maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}
