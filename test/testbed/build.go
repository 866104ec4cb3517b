package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Build compiles a program of the repository at root into dir, with flags for go build, and returns its path.
//
// All tests share a folder of the repository in which programs are linked: go build takes half a second for a program that is up to date there, and six for
// another one.
func Build(ctx context.Context, root, program, dir string, flags ...string) (_ string, err error) {
	shared := filepath.Join(root, "bin", "tests", url.PathEscape(strings.Join(flags, " ")))
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	unlock, err := Lock(filepath.Join(shared, program+".lock"))
	if err != nil {
		return "", fmt.Errorf("building %s: %w", program, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	built := filepath.Join(shared, program)
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-o", built}, flags, []string{"./cmd/" + program})...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	path := filepath.Join(dir, program)
	return path, place(ctx, built, path)
}

// Lock locks a file, which it makes if need be, against other processes until unlock. It waits while another process has it.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// place puts a program that is built under another path, too. A program that go build writes later is another file, so this one stays as it is. On another file
// system a process of its own copies it: a test could not start a file that its own process still has open for writing.
func place(ctx context.Context, built, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(built, path) == nil {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "cp", built, path).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w\n%s", built, err, out)
	}
	return nil
}
