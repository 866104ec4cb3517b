package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How long after a change files are read: when nothing has happened to them for quiet, because a certificate and its
// key are often written one after the other, and at the latest after maxWait.
const (
	quiet   = 50 * time.Millisecond
	maxWait = 500 * time.Millisecond
)

// How often files are read without a change. Some changes come without an event: a directory far above is renamed, or
// another host writes to a shared file system. Where watching is impossible, looking is all there is.
const (
	watchedPoll   = 30 * time.Second
	unwatchedPoll = time.Second
)

// maxFile is the largest file that is read. The bundle of a system has about 250 KB.
const maxFile = 4 << 20

// Files is the provider of the secrets that lie in files.
type Files struct {
	board      *Board
	log        *slog.Logger
	newWatcher func() (*fsnotify.Watcher, error)
}

// NewFiles returns the provider for a board.
func NewFiles(b *Board, log *slog.Logger) *Files {
	return &Files{board: b, log: log, newWatcher: fsnotify.NewWatcher}
}

// Run reads and watches what the board wants until ctx is cancelled.
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
				r.lost(errors.New("the watcher ended"))
			} else {
				r.event(e, time.Now())
			}
		case err, ok := <-failures:
			if !ok {
				err = errors.New("the watcher ended")
			}
			r.lost(err)
		case <-timer.C:
			r.settle(time.Now())
		}
	}
}

// reader is the state of a running Files. It belongs to Run's goroutine.
type reader struct {
	*Files
	watches watches
	secrets map[string]*fileSecret

	dirty       map[string]bool // to be read again soon
	first, last time.Time       // when what made them so began, and happened last
	looked      time.Time       // when all was read last
}

// fileSecret is one secret that is watched.
type fileSecret struct {
	sources
	over   map[string]bool // real paths: a change of one may change the secret
	posted string          // what was said of it last
}

// follow takes in what is wanted now.
func (r *reader) follow(v *View) {
	now := time.Now()
	if len(r.secrets) == 0 {
		r.looked = now
	}
	for name := range v.Entries {
		if r.secrets[name] != nil {
			continue
		}
		if s, err := parse(name); err == nil {
			r.secrets[name] = &fileSecret{sources: s}
			r.look(name)
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
		r.watches.only(r.secrets)
	}
}

// due is when something is to be read next.
func (r *reader) due() time.Time {
	poll := watchedPoll
	if r.watches.lame {
		poll = unwatchedPoll
	}
	at := r.looked.Add(poll)
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

// event takes in what the watcher saw.
func (r *reader) event(e fsnotify.Event, now time.Time) {
	all := r.watches.ended(e)
	for name, s := range r.secrets {
		if all || s.over[e.Name] {
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

// lost is called when events may have been missed.
func (r *reader) lost(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		r.log.Warn("watching certificate files failed; watching anew", "error", err)
		r.watches.close()
	}
	for name := range r.secrets {
		r.touch(name, time.Now())
	}
}

// settle reads what is due.
func (r *reader) settle(now time.Time) {
	if len(r.dirty) == 0 {
		for name := range r.secrets {
			r.dirty[name] = true
		}
		r.looked = now
		r.watches.lame = false // it is tried again
	}
	for name := range r.dirty {
		r.look(name)
	}
	clear(r.dirty)
	r.watches.only(r.secrets)
}

// look reads the files of a secret and posts what came of it.
func (r *reader) look(name string) {
	s := r.secrets[name]
	r.watches.follow(s)
	a, err := s.read(name)
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

// read makes the secret of its files.
func (s *fileSecret) read(name string) (Answer, error) {
	files := s.choose()
	if files == nil {
		return Answer{}, s.nowhere(name)
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
		a, err = makeRoots(name, files[0], data[0])
	}
	a.Files = files
	return a, err
}

// choose is the first alternative of which a file exists; nil if there are several and none exists.
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

// nowhere says that no alternative exists.
func (s *fileSecret) nowhere(name string) error {
	var places []string
	for _, files := range s.alternatives {
		places = append(places, strings.Join(files, " with "))
	}
	what, remedy := "bundle of roots", "install the package ca-certificates, or name a file (caCertificates)"
	switch name {
	case workload:
		what, remedy = "workload certificate", "mount one there: this agent gets none from a certificate authority yet"
	case meshRoots:
		what, remedy = "file with the mesh's roots", "mount one there: this agent gets none from a certificate authority yet"
	}
	return fmt.Errorf("there is no %s at %s; %s", what, strings.Join(places, ", "), remedy)
}

// readFile reads a regular file. It does not wait for the writer of a pipe, and takes no device.
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
