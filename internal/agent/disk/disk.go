// Package disk reads and writes the files of the agent: settings, bootstraps, certificates.
//
// Invariants: No file can hang the agent. A pipe, a socket or a device is refused, and a read has a time limit, because a network file system
// may never answer. A file is replaced atomically, and one that has the content already is not written again, so a full disk
// never destroys a file.
//
// Goroutines: one per read, which outlives Read only if the file system does not answer.
package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
)

// patience is how long a file system may take to deliver a file.
const patience = 10 * time.Second

// maxFile is the size of the largest file that is read, in bytes.
const maxFile = 4 << 20

// Read returns the content of a regular file of at most 4 MiB. /dev/null counts as an empty file.
func Read(path string) ([]byte, error) {
	return within(patience, path, func() ([]byte, error) { return read(path) })
}

// within returns the result of load, or an error if that takes too long.
func within(limit time.Duration, path string, load func() ([]byte, error)) ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := load()
		done <- result{content, err}
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-done:
		return r.content, r.err
	case <-late.C:
		return nil, fmt.Errorf("%s cannot be read: its file system has not answered for %v; is it mounted from a server that does not respond?", path, limit)
	}
}

func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer does not block then
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case isNull(info):
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; write the content into one", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, and the most is %d", path, info.Size(), maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// isNull reports whether a file is the null device.
func isNull(info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(null, info)
}

// privateMode is the mode of files that Replace writes.
const privateMode = 0o600

// Replace writes content to a file that only this user can read. It writes nothing if the file already has that content and mode. If it fails,
// the file is as it was before.
func Replace(path string, content []byte) error {
	return ReplaceAll(filepath.Dir(path), []File{{Name: filepath.Base(path), Content: content}})
}

// ReplaceAll is like Replace for files of one folder that belong together, in the order of their names. If one of them cannot be written, no
// file is replaced.
func ReplaceAll(dir string, files []File) (err error) {
	var pending []*renameio.PendingFile
	defer func() {
		for _, p := range pending {
			err = errors.Join(err, p.Cleanup()) // which does nothing after a replacement
		}
	}()
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if f.same(path) {
			continue
		}
		permissions := renameio.WithStaticPermissions(privateMode)
		if f.Public {
			permissions = renameio.WithExistingPermissions()
		}
		p, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithPermissions(privateMode), permissions)
		if err != nil {
			return err
		}
		pending = append(pending, p)
		if _, err := p.Write(f.Content); err != nil {
			return err
		}
		if err := p.Sync(); err != nil {
			return err
		}
	}
	for _, p := range pending {
		if err := p.CloseAtomicallyReplace(); err != nil {
			return err
		}
	}
	return nil
}

// File is a file of ReplaceAll.
type File struct {
	Name    string
	Content []byte
	// Public keeps the permissions of an existing file. Other files, and all new files, are for this user only.
	Public bool
}

// same reports whether the file at a path is the one that would be written.
func (f File) same(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || !f.Public && info.Mode().Perm() != privateMode || info.Size() != int64(len(f.Content)) {
		return false
	}
	present, err := Read(path)
	return err == nil && bytes.Equal(present, f.Content)
}

// Full reports whether an error says that there is no space left to write.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// young is the age of files that Sweep leaves alone: another program may be writing them.
const young = time.Minute

// Sweep removes temporary files that killed writers of some files have left behind in a folder: files whose names are a dot,
// the name of the file and digits.
func Sweep(dir string, names ...string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // there is no such folder
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < young {
			continue
		}
		for _, name := range names {
			if digits, ok := strings.CutPrefix(e.Name(), "."+name); ok && digits != "" && strings.Trim(digits, "0123456789") == "" {
				_ = os.Remove(filepath.Join(dir, e.Name())) // the next agent tries again
			}
		}
	}
}
