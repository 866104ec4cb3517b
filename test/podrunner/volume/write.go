// Package volume makes what pods mount: directories, and files whose content comes from objects. It knows what belongs
// into a volume and how it is written; who watches the objects and asks again is not its matter.
package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// File is one file of a volume made of objects.
type File struct {
	Data []byte
	Mode fs.FileMode
	User int // who owns it
}

// The names by which a set of files is exchanged at once.
const (
	dataLink = "..data"
	nextLink = "..data_tmp"
)

// Write makes the directory show exactly the files, all old or all new at any moment: they are written to a directory
// beside, and a link that all visible names go through is moved there. So does the kubelet, and readers count on it. It
// reports whether anything changed.
func Write(dir string, files map[string]File, group *int64) (bool, error) {
	if same(dir, files) {
		return false, nil
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if old != "" && filepath.Base(old) != old {
		return false, fmt.Errorf("link %s of %s leads out of the volume", dataLink, dir)
	}
	next, err := os.MkdirTemp(dir, "..data-")
	if err != nil {
		return false, err
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return false, err
	}
	for name, file := range files {
		if err := writeFile(filepath.Join(next, name), file, group); err != nil {
			return false, err
		}
	}
	if err := swap(dir, filepath.Base(next)); err != nil {
		return false, err
	}
	if err := linkNames(dir, files); err != nil {
		return false, err
	}
	if old != "" {
		err = os.RemoveAll(filepath.Join(dir, old))
	}
	return true, err
}

// Places makes the directories in a volume at which containers mount other volumes, as the kubelet does: a volume that is mounted read-only
// cannot get them later.
func Places(dir string, object *v1.Pod, name string) error {
	for _, c := range slices.Concat(object.Spec.InitContainers, object.Spec.Containers) {
		for _, outer := range c.VolumeMounts {
			if outer.Name != name || outer.SubPath != "" || outer.SubPathExpr != "" {
				continue
			}
			for _, inner := range c.VolumeMounts {
				below, ok := strings.CutPrefix(filepath.Clean(inner.MountPath), filepath.Clean(outer.MountPath)+"/")
				if !ok {
					continue
				}
				if err := os.MkdirAll(filepath.Join(dir, below), 0o755); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func writeFile(path string, file File, group *int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := file.Mode
	if group != nil {
		mode |= 0o440
	}
	if err := os.WriteFile(path, file.Data, 0o600); err != nil {
		return err
	}
	if group != nil || file.User != 0 {
		id := 0
		if group != nil {
			id = int(*group)
		}
		if err := os.Chown(path, file.User, id); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

func swap(dir, to string) error {
	next := filepath.Join(dir, nextLink)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, dataLink))
}

// linkNames makes the visible names: links for the first part of each path, which lead through the data link.
func linkNames(dir string, files map[string]File) error {
	wanted := make(map[string]bool)
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		wanted[first] = true
		err := os.Symlink(filepath.Join(dataLink, first), filepath.Join(dir, first))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !wanted[name] && !strings.HasPrefix(name, "..") && !entry.IsDir() { // a directory is a place for another volume
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// same reports whether the directory has exactly these files already.
func same(dir string, files map[string]File) bool {
	data := filepath.Join(dir, dataLink)
	if _, err := os.Stat(data); err != nil {
		return false
	}
	found := 0
	err := filepath.WalkDir(data+"/", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(data, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if file, ok := files[name]; err != nil || !ok || !bytes.Equal(text, file.Data) {
			found = -1
			return fs.SkipAll
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}
