// Package tree describes the files of an archive or an image, and writes them as a tar that depends on nothing but its content.
//
// Invariants: entries are sorted, each folder stands before its content, and owners, modes and times do not come from the machine that
// writes. Equal trees give equal bytes. The package starts no goroutines.
package tree

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// File is one entry.
type File struct {
	// Mode has the type and the permissions.
	Mode fs.FileMode
	// Owner is the number of the user and of the group.
	Owner int
	// Target is where a symbolic link leads to.
	Target string
	// Data is the content of a file, and Source a path to it; one of them is set.
	Data   []byte
	Source string
}

// Tree has entries by their path, which is relative and clean.
type Tree map[string]File

// Text adds a file that everybody may read.
func (t Tree) Text(name, content string) { t[name] = File{Mode: 0o644, Data: []byte(content)} }

// Program adds a program from the disk.
func (t Tree) Program(name, source string) { t[name] = File{Mode: 0o755, Source: source} }

// Folder adds a folder with permissions and an owner of its own.
func (t Tree) Folder(name string, mode fs.FileMode, owner int) {
	t[name] = File{Mode: fs.ModeDir | mode, Owner: owner}
}

// Link adds a symbolic link.
func (t Tree) Link(name, target string) {
	t[name] = File{Mode: fs.ModeSymlink | 0o777, Target: target}
}

// Join adds the entries of another tree. One path with two contents is an error.
func (t Tree) Join(o Tree) error {
	for name, f := range o {
		former, there := t[name]
		if there && (former.Mode != f.Mode || former.Target != f.Target || former.Source != f.Source || !bytes.Equal(former.Data, f.Data)) {
			return fmt.Errorf("%s comes from two places, with different contents", name)
		}
		t[name] = f
	}
	return nil
}

// Write writes the tree as a tar. All entries have one time.
func (t Tree) Write(w io.Writer, date time.Time) error {
	all := maps.Clone(t)
	for name := range t {
		if name != path.Clean(name) || path.IsAbs(name) || name == "." || name == ".." || strings.HasPrefix(name, "../") {
			return fmt.Errorf("%q is no path of an archive: it must be relative, and stay inside", name)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if f, there := all[dir]; !there {
				all.Folder(dir, 0o755, 0)
			} else if !f.Mode.IsDir() {
				return fmt.Errorf("%s is inside of %s, which is no folder", name, dir)
			}
		}
	}
	out := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := all[name].write(out, name, date); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return out.Close()
}

// permissions are the bits of a mode that a tar keeps.
func permissions(m fs.FileMode) int64 {
	bits := int64(m.Perm())
	if m&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

func (f File) write(out *tar.Writer, name string, date time.Time) error {
	h := &tar.Header{Name: name, Mode: permissions(f.Mode), Uid: f.Owner, Gid: f.Owner, ModTime: date.UTC().Truncate(time.Second), Format: tar.FormatPAX}
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return out.WriteHeader(h)
	case f.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Target
		return out.WriteHeader(h)
	case f.Source == "":
		h.Typeflag, h.Size = tar.TypeReg, int64(len(f.Data))
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := out.Write(f.Data)
		return err
	}
	in, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}
