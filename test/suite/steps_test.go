package main

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
)

// TestLonger: the packages with random histories, and with tests that are cut short, are tested in full; others are not tested twice.
func TestLonger(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	found, err := longer(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(found[0], "/xds/class") {
		t.Errorf("%s is the first, and takes less time than others", found[0])
	}
	for name, want := range map[string]bool{"internal/xds/class": true, "internal/xds/authz": true, "internal/engine/omap": true, "internal/admin": false} {
		if slices.Contains(found, module+name) != want {
			t.Errorf("%s is among %v: %t, want %t", name, found, !want, want)
		}
	}
}

// TestTools: packages with steps of their own are not tested twice, and the benchmarks are a part of `make check` in short form.
func TestTools(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	slow, err := tools(t.Context(), filepath.Join(root, "test"))
	if err != nil {
		t.Fatal(err)
	}
	short, err := toolsAndBench(t.Context(), filepath.Join(root, "test"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]bool{"suite": {true, true}, "bench": {false, true}, "arch": {}, "docs": {}, "e2e/agent": {}} {
		if p := module + "test/" + name; slices.Contains(slow, p) != want[0] || slices.Contains(short, p) != want[1] {
			t.Errorf("%s is tested with the tools of make test, of make check: %t, %t; want %v", p, slices.Contains(slow, p), slices.Contains(short, p), want)
		}
	}
}

// TestLongestFirst: the first package of each module that has one is among the longest, which are still named as in the pattern.
func TestLongestFirst(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "test", "test/cluster"} {
		found, err := list(t.Context(), filepath.Join(root, dir), func(string) bool { return true })
		if err != nil || len(found) == 0 || !longest.MatchString(found[0]) {
			t.Errorf("module %q: %v, %v", dir, found[:min(len(found), 1)], err)
		}
	}
}

// TestEveryModuleIsVetted: a Go module that is added is not forgotten. Left out are modules that only list programs to build, and Kubernetes' tests
// of nodes, which take ten minutes to build.
func TestEveryModuleIsVetted(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		module := strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(path), root), "/")
		if d.Name() != "go.mod" || strings.HasPrefix(module, "test/cluster/build/") || module == "test/podrunner/nodeconformance" {
			return nil
		}
		found++
		if !slices.ContainsFunc(suites["test"], func(s step) bool { return strings.HasPrefix(s.name, "vet") && s.dir == module }) {
			t.Errorf("make test has no vet step for the module %q", module)
		}
		return nil
	})
	if err != nil || found < 5 {
		t.Errorf("%d modules, %v", found, err)
	}
}
