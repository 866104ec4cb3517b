package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Tree is a mount that hangs nowhere yet: it lives by its descriptor and is hung where a container wants it.
type Tree struct {
	file *os.File
	dir  bool
}

// Close lets go of the tree; containers that have it keep it.
func (t *Tree) Close() error { return t.file.Close() }

// Path leads to the tree's inside while it is open.
func (t *Tree) Path() string { return fmt.Sprintf("/proc/self/fd/%d", t.file.Fd()) }

// Clone is another mount of the same tree.
func (t *Tree) Clone(readOnly bool) (*Tree, error) {
	return cloneAt(int(t.file.Fd()), "", t.file.Name(), unix.AT_EMPTY_PATH, t.dir, readOnly)
}

// Bind is a mount of the machine's path, with the mounts below it.
func Bind(path string, readOnly bool) (*Tree, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return cloneAt(unix.AT_FDCWD, path, path, unix.AT_RECURSIVE, info.IsDir(), readOnly)
}

// BindBelow is a mount of the path below the directory. Links are followed as long as they stay there.
func BindBelow(directory, path string, readOnly bool) (*Tree, error) {
	file, err := below(directory, path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return cloneAt(int(file.Fd()), "", file.Name(), unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, info.IsDir(), readOnly)
}

// below opens the path in the directory, refusing paths that lead outside of it.
func below(directory, path string, flags uint64) (*os.File, error) {
	base, err := unix.Open(directory, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: directory, Err: err}
	}
	defer func() { _ = unix.Close(base) }()
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	full := filepath.Join(directory, path)
	fd, err := unix.Openat2(base, path, how)
	if errors.Is(err, unix.EXDEV) {
		return nil, fmt.Errorf("%s leads out of %s", path, directory)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: full, Err: err}
	}
	return os.NewFile(uintptr(fd), full), nil
}

// MakeBelow makes path a directory below the directory, with those above it, unless there is something already.
func MakeBelow(directory, path string, mode os.FileMode) error {
	if file, err := below(directory, path, unix.O_PATH); err == nil {
		return file.Close()
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if parent := filepath.Dir(path); parent != "." {
		if err := MakeBelow(directory, parent, mode); err != nil {
			return err
		}
	}
	parent, err := below(directory, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := unix.Mkdirat(int(parent.Fd()), filepath.Base(path), uint32(mode.Perm())); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: filepath.Join(directory, path), Err: err}
	}
	return nil
}

func cloneAt(at int, path, name string, flags uint, dir, readOnly bool) (*Tree, error) {
	fd, err := unix.OpenTree(at, path, flags|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: name, Err: err}
	}
	tree := &Tree{file: os.NewFile(uintptr(fd), name), dir: dir}
	if !readOnly {
		return tree, nil
	}
	attributes := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attributes); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mount_setattr", Path: name, Err: err}, tree.Close())
	}
	return tree, nil
}

// Overlay shows the lower directory with changes that are kept in two directories it makes below changes.
func Overlay(lower, changes string) (*Tree, error) {
	upper, work := filepath.Join(changes, "upper"), filepath.Join(changes, "work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return newTree("overlay", lower, [][2]string{
		{"source", "podrunner"}, {"lowerdir", lower}, {"upperdir", upper}, {"workdir", work},
		{"volatile", ""}, // these changes are never mounted again: its end need not wait for the disk
	})
}

// OnRoot reports whether a path lies on the file system of "/", or nowhere.
func OnRoot(path string) bool {
	var root, there unix.Stat_t
	if unix.Stat("/", &root) != nil || unix.Stat(path, &there) != nil {
		return true
	}
	return root.Dev == there.Dev
}

// Memory is an empty tree in memory. Size is in bytes; none means the kernel's default, half of the memory.
func Memory(size int64) (*Tree, error) {
	options := [][2]string{{"source", "podrunner"}, {"mode", "1777"}}
	if size > 0 {
		options = append(options, [2]string{"size", fmt.Sprint(size)})
	}
	return newTree("tmpfs", "tmpfs", options)
}

func newTree(kind, name string, options [][2]string) (*Tree, error) {
	context, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open file system %s: %w", kind, err)
	}
	defer func() { _ = unix.Close(context) }()
	for _, option := range options {
		var err error
		if option[1] == "" {
			err = unix.FsconfigSetFlag(context, option[0])
		} else {
			err = unix.FsconfigSetString(context, option[0], option[1])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s=%s: %w%s", kind, option[0], option[1], err, complaint(context))
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("make %s: %w%s", kind, err, complaint(context))
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w%s", kind, err, complaint(context))
	}
	return &Tree{file: os.NewFile(uintptr(fd), name), dir: true}, nil
}

// complaint is what the kernel has to say about a file system that it refused.
func complaint(context int) string {
	text := make([]byte, 256)
	n, err := unix.Read(context, text)
	if err != nil || n == 0 {
		return ""
	}
	return " (" + string(text[:n]) + ")"
}
