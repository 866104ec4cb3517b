package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed is the description of a package by the go command.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	CgoFiles        []string
	TestGoFiles     []string
	XTestGoFiles    []string
	Imports         []string
}

// packages asks the go command for the packages of the module in dir. Packages that do not build are listed too:
// that is not this test's business.
func packages(t *testing.T, dir string, flags ...string) []listed {
	t.Helper()
	args := append([]string{"list", "-e", "-json=Dir,ImportPath,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,Imports"}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./...")...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
	return all
}

// matches reports whether name is one of the space-separated patterns.
func matches(patterns, name string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool {
		if below, ok := strings.CutSuffix(p, "/..."); ok {
			return name == below || strings.HasPrefix(name, below+"/")
		}
		return name == p
	})
}

// place is a package's name below internal/, or ok=false if it stands elsewhere.
func place(importPath string) (name string, ok bool) {
	return strings.CutPrefix(importPath, module+"internal/")
}

func TestImports(t *testing.T) {
	all := packages(t, root)
	if len(all) < 5 {
		t.Fatalf("go list found %d packages: the test does not see the project", len(all))
	}
	for _, p := range all {
		for _, finding := range imports(p) {
			t.Error(finding)
		}
	}
}

// imports checks one package against the tables.
func imports(p listed) []string {
	var found []string
	name, internal := place(p.ImportPath)
	row := slices.IndexFunc(flow, func(r struct{ pkg, imports string }) bool { return matches(r.pkg, name) })
	if internal && row < 0 {
		return []string{"internal/" + name + " stands in no row of flow (test/arch/rules_test.go): say there what it may import"}
	}
	for _, i := range p.Imports {
		if strings.HasPrefix(i, module+"cmd/") {
			found = append(found, p.ImportPath+" imports "+i+": programs are imported by nobody")
		}
		if target, ok := place(i); ok && internal && !matches(flow[row].imports, target) {
			found = append(found, "internal/"+name+" imports internal/"+target+": it may import only ["+flow[row].imports+"] (test/arch/rules_test.go); hand the value in, or move the code to where the arrow is allowed")
		}
		best := -1
		for n, o := range outside {
			if strings.HasPrefix(i, o.prefix) && (best < 0 || len(o.prefix) > len(outside[best].prefix)) {
				best = n
			}
		}
		if best >= 0 {
			if o := outside[best]; !internal && o.only == "" || internal && !matches(o.only, name) {
				found = append(found, p.ImportPath+" imports "+i+", which only ["+o.only+"] may: "+o.why)
			}
		}
	}
	return found
}

// TestFolders holds the folders of internal to a number that a reader can keep in mind, and to one direction: no two import each other, directly or through
// others.
func TestFolders(t *testing.T) {
	folders := map[string]map[string]bool{}
	for _, p := range packages(t, root) {
		name, internal := place(p.ImportPath)
		if !internal {
			continue
		}
		from, _, _ := strings.Cut(name, "/")
		if folders[from] == nil {
			folders[from] = map[string]bool{}
		}
		for _, i := range p.Imports {
			if target, ok := place(i); ok {
				if to, _, _ := strings.Cut(target, "/"); to != from {
					folders[from][to] = true
				}
			}
		}
	}
	arrows := 0
	for from, to := range folders {
		arrows += len(to)
		if cycle := way(folders, from, from, map[string]bool{}); cycle != nil {
			t.Errorf("folders of internal import each other: %s", strings.Join(cycle, " -> "))
		}
	}
	if len(folders) > topFolders || arrows > topImports {
		t.Errorf("internal has %d folders with %d imports between them: at most %d and %d", len(folders), arrows, topFolders, topImports)
	}
}

// way returns the folders on a way of imports from one folder to another, without the folders in seen; nil if there is none.
func way(folders map[string]map[string]bool, from, to string, seen map[string]bool) []string {
	for _, next := range slices.Sorted(maps.Keys(folders[from])) {
		if next == to {
			return []string{from, to}
		}
		if seen[next] {
			continue
		}
		seen[next] = true
		if rest := way(folders, next, to, seen); rest != nil {
			return append([]string{from}, rest...)
		}
	}
	return nil
}

func TestPackages(t *testing.T) {
	for _, p := range packages(t, root) {
		last := p.ImportPath[strings.LastIndex(p.ImportPath, "/")+1:]
		if slices.Contains(bannedPackages, last) {
			t.Errorf("%s: the name %q says nothing about what is inside: name the package after what it holds", p.ImportPath, last)
		}
		name, internal := place(p.ImportPath)
		c := newChecker(name)
		c.program = !internal
		for _, f := range slices.Concat(p.GoFiles, p.CgoFiles) {
			c.file(t, filepath.Join(p.Dir, f), false)
		}
		for _, f := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			c.file(t, filepath.Join(p.Dir, f), true)
		}
		for _, finding := range c.finish() {
			t.Error(finding)
		}
	}
}

// TestTestModules checks the modules below test by the rules for tests.
func TestTestModules(t *testing.T) {
	for _, module := range []string{"test", "test/kit", "test/podrunner", "test/cluster", "test/dubbo", "packaging"} {
		// -find: what the packages import need not be there, and for a test cluster that is a lot.
		for _, p := range packages(t, filepath.Join(root, module), "-find") {
			c := newChecker(module)
			for _, f := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
				c.file(t, filepath.Join(p.Dir, f), true)
			}
			for _, finding := range c.finish() {
				t.Error(finding)
			}
		}
	}
}

const root = "../.."
