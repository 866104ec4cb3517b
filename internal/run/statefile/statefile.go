// Package statefile stores the persistent state of a control plane outside Kubernetes: files in its state folder, such as the key
// of the certificate authority.
//
// Invariants: Only the user who runs the program can read a file, unless it is public. A file is written whole or not at all. Several
// programs may use one folder: of two that create a file, one does, and both have the same content.
//
// Goroutines: none.
package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxSize is the size of the largest file that is read, in bytes.
const maxSize = 1 << 20

// Dir is a state folder.
type Dir string

// Default returns the usual state folder of a user. lookup has the signature of os.LookupEnv.
func Default(lookup func(name string) (string, bool)) string {
	if dir, ok := lookup("PILOT_STATE_DIR"); ok && dir != "" {
		return dir
	}
	if dir, ok := lookup("XDG_STATE_HOME"); ok && dir != "" {
		return filepath.Join(dir, "pilot")
	}
	if home, ok := lookup("HOME"); ok && home != "" {
		return filepath.Join(home, ".local", "state", "pilot")
	}
	return "pilot-state"
}

// Path returns the path of a file.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Read reads a file. It refuses one that other users can read, because its content is known to them.
func (d Dir) Read(name string) ([]byte, error) {
	return d.read(name, 0o077, "can be read or changed by other users (mode %#o), and it has a private key; replace the key, or run chmod 600 on it if no other user has read it")
}

// ReadUnchanged reads a file without secrets. It refuses one that other users can change.
func (d Dir) ReadUnchanged(name string) ([]byte, error) {
	return d.read(name, 0o022, "can be changed by other users (mode %#o), so it is not believed; remove it, or run chmod 600 on it if no other user has changed it")
}

// read reads a file whose mode has none of the forbidden bits. trouble describes a file that has one.
func (d Dir) read(name string, forbidden fs.FileMode, trouble string) ([]byte, error) {
	path := d.Path(name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; remove it", path)
	case info.Mode().Perm()&forbidden != 0:
		return nil, fmt.Errorf("%s "+trouble, path, info.Mode().Perm())
	case info.Size() > maxSize:
		return nil, fmt.Errorf("%s has %d bytes, and the most is %d", path, info.Size(), maxSize)
	}
	return os.ReadFile(path)
}

// Create returns the content of a file. If there is none, make makes the content, and the file is created.
func (d Dir) Create(name string, make func() ([]byte, error)) ([]byte, error) {
	for range 3 { // another program may create or remove it in between
		content, err := d.Read(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return content, err
		}
		if content, err = make(); err != nil {
			return nil, err
		}
		err = d.write(name, content, 0o600, os.Link) // which fails if the file exists
		if err == nil {
			return content, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s is created and removed by another program again and again", d.Path(name))
}

// Replace replaces the content of a file.
func (d Dir) Replace(name string, content []byte) error {
	return d.write(name, content, 0o600, os.Rename)
}

// Publish replaces the content of a file that everybody may read.
func (d Dir) Publish(name string, content []byte) error {
	return d.write(name, content, 0o644, os.Rename)
}

// write writes a temporary file and gives it its name.
func (d Dir) write(name string, content []byte, mode fs.FileMode, place func(from, to string) error) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("the state folder: %w; name one that this user can write to (--stateDir)", err)
	}
	tmp, err := os.CreateTemp(string(d), "."+name+"-*") // CreateTemp makes the file readable by its owner only
	if err != nil {
		return fmt.Errorf("the state folder: %w; name one that this user can write to (--stateDir)", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // after a rename there is none
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = place(tmp.Name(), d.Path(name))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", d.Path(name), err)
	}
	return nil
}

// Lock takes the folder for one program at a time, until release is called. It waits for the program that has it.
func (d Dir) Lock() (release func(), err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("the state folder: %w; name one that this user can write to (--stateDir)", err)
	}
	f, err := os.OpenFile(d.Path(".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the state folder %s: %w", d, err), f.Close())
	}
	return func() { _ = f.Close() }, nil // which ends the lock
}
