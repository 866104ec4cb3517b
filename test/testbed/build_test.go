package testbed

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestBuild: a program is built again when its source changes, and the one that a test has stays as it is.
func TestBuild(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	source := func(version string) {
		write("cmd/hello/main.go", "package main\n\nfunc main() { print(`"+version+"`) }\n")
	}
	write("go.mod", "module example.com/hello\n")
	source("one")
	build := func(dir string) string {
		path, err := Build(t.Context(), root, "hello", dir)
		if err != nil {
			t.Error(err)
		}
		return path
	}
	says := func(path, want string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), path).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s says %q, %v; want %q", path, out, err, want)
		}
	}
	var all sync.WaitGroup
	for range 4 { // as packages of tests do at once
		own := t.TempDir()
		all.Go(func() { says(build(own), "one") })
	}
	all.Wait()
	first := build(dir)
	source("two")
	says(build(t.TempDir()), "two")
	says(first, "one")
	says(build(dir), "two")
	write("cmd/hello/main.go", "package main\n\nfunc main() { nothing }\n")
	if _, err := Build(t.Context(), root, "hello", dir); err == nil {
		t.Error("a program with a mistake is built")
	}
}
