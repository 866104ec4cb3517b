// Package docs holds the pages for users to the programs: it runs their commands and compares the output, and finds links that lead nowhere. It
// holds tests only.
//
// A block with the language "console" has commands, each behind "$ ", and their output, where "..." matches any text. All such blocks of
// a page run in one shell, in an empty folder with bin/ and samples/. A YAML block that begins with a comment such as "# mesh/routes.yaml" becomes this
// file. A block that needs a cluster or other things has a comment before it, which names the test that does the same:
//
//	<!-- run by: TestLife in test/cluster/installation -->
//	<!-- run by: step demo of make test -->
//	<!-- not run: REASON -->
//
// A YAML block with a comment that begins with "shown:" may have problems.
package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

var (
	update = flag.Bool("update", false, "write the real output of commands into the pages where it differs")
	built  = flag.String("bin", "", "folder with the programs and bin/bookstore, which are built otherwise")
)

// notRun is the number of blocks by page that no test runs. It must not grow: let a test run the commands instead.
var notRun = map[string]int{
	"doc/cni.md": 1, "doc/debug-pages.md": 1, "doc/first-mesh.md": 1, "doc/install.md": 2, "doc/migration.md": 2, "doc/upgrade.md": 1,
}

// programs are the programs that pages call.
type programs struct {
	root, bin string
	envoy     string // "" if there is none
}

func build(t *testing.T) programs {
	t.Helper()
	root, err := repo.Root()
	must(t, err)
	p := programs{root: root}
	if *built != "" {
		p.bin, err = filepath.Abs(*built)
		must(t, err)
	}
	p.envoy, _, _ = envoy.Find(t.Context(), root) // without one, the pages that need it are skipped
	if p.bin != "" {
		return p
	}
	p.bin = t.TempDir()
	for _, name := range []string{"pilot-discovery", "pilot-agent", "pilotctl"} {
		_, err := testbed.Build(t.Context(), root, name, p.bin)
		must(t, err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(p.bin, "bookstore"), "./samples/bookstore/app")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the bookstore: %v\n%s", err, out)
	}
	return p
}

// pages returns the pages with commands, by their path from the root.
func pages(t *testing.T, root string) map[string]string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(root, "doc", "*.md"))
	must(t, err)
	all := map[string]string{}
	for _, path := range append(list, filepath.Join(root, "README.md"), filepath.Join(root, "samples", "README.md")) {
		text, err := os.ReadFile(path)
		must(t, err)
		name, err := filepath.Rel(root, path)
		must(t, err)
		all[name] = string(text)
	}
	return all
}

// TestPages runs the commands of all pages, and checks the documents that they show.
func TestPages(t *testing.T) {
	p := build(t)
	t.Run("commands", p.commands)
	t.Run("documents", p.documents)
}

func (p programs) commands(t *testing.T) {
	ran := 0
	for name, text := range pages(t, p.root) {
		blocks, err := parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		script, steps, err := script(blocks)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(steps) == 0 {
			continue
		}
		ran += len(steps)
		t.Run(name, func(t *testing.T) {
			if p.envoy == "" && strings.Contains(script, "sidecar.sh") {
				t.Skip("needs an Envoy: run `make tools`")
			}
			differ := compare(t, name, steps, outcomes(p.run(t, script)))
			if *update {
				must(t, os.WriteFile(filepath.Join(p.root, name), []byte(rewrite(text, differ)), 0o644))
			}
		})
	}
	if ran < 30 {
		t.Errorf("only %d commands of the pages run", ran)
	}
}

// compare reports steps whose output differs, and returns them with the real output.
func compare(t *testing.T, page string, steps []step, got []outcome) map[int]outcome {
	t.Helper()
	if len(got) != len(steps) {
		t.Fatalf("%s: %d commands, of which %d were run", page, len(steps), len(got))
	}
	differ := map[int]outcome{}
	for i, s := range steps {
		switch o := got[i]; {
		case !matches(s.output, o.output):
			differ[s.line] = o
			t.Errorf("%s:%d: $ %s\nshows:\n%s\nprints:\n%s", page, s.line, s.command, strings.Join(s.output, "\n"), strings.Join(o.output, "\n"))
		case o.code != 0 && len(s.output) == 0:
			t.Errorf("%s:%d: $ %s\nexit code %d, and no output that says why", page, s.line, s.command, o.code)
		}
	}
	return differ
}

// rewrite replaces the output of steps, which are named by the line behind the command.
func rewrite(text string, differ map[int]outcome) string {
	lines := strings.Split(text, "\n")
	for _, from := range slices.Backward(slices.Sorted(maps.Keys(differ))) {
		to := from
		for lines[to] != "```" && !strings.HasPrefix(lines[to], "$ ") {
			to++
		}
		lines = slices.Replace(lines, from, to, differ[from].output...)
	}
	return strings.Join(lines, "\n")
}

// TestMarks: a block that is not run names a test or a step that exists, or the reason.
func TestMarks(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	excused := map[string]int{}
	for name, text := range pages(t, root) {
		blocks, err := parse(text)
		must(t, err)
		for _, b := range blocks {
			if b.lang == "" && len(b.lines) > 0 && command.MatchString(b.lines[0]) {
				t.Errorf("%s:%d: commands belong into a block ```console, behind `$ `", name, b.line)
			}
			if b.lang != "console" || b.mark == "" {
				continue
			}
			tests, byTest := strings.CutPrefix(b.mark, "run by: ")
			switch {
			case strings.HasPrefix(b.mark, "not run: "):
				excused[name]++
			case !byTest:
				t.Errorf("%s:%d: the comment before the block is neither `run by:` nor `not run:`", name, b.line)
			}
			for test := range strings.SplitSeq(tests, ", ") {
				if reason := missing(root, test); byTest && reason != "" {
					t.Errorf("%s:%d: %s", name, b.line, reason)
				}
			}
		}
	}
	if !maps.Equal(excused, notRun) {
		t.Errorf("blocks that no test runs, by page: %v; notRun has %v", excused, notRun)
	}
}

// command matches a line that calls a program.
var command = regexp.MustCompile(`^(\$ |(bin/)?pilot(ctl|-discovery|-agent) |kubectl |helm |make |curl |apt )`)

var named = regexp.MustCompile(`^(Test[A-Za-z0-9]+) in ([a-zA-Z0-9/-]+)$|^step ([a-z0-9]+) of make test$`)

// missing returns why a mark names no test; "" if it names one.
func missing(root, mark string) string {
	m := named.FindStringSubmatch(mark)
	if m == nil {
		return fmt.Sprintf("%q is neither `TestNAME in FOLDER` nor `step NAME of make test`", mark)
	}
	pattern, text := filepath.Join(root, m[2], "*_test.go"), "\nfunc "+m[1]+"(t *testing.T)"
	if m[3] != "" {
		pattern, text = filepath.Join(root, "test", "suite", "*.go"), `"`+m[3]+`"`
	}
	files, _ := filepath.Glob(pattern) // the pattern is right
	for _, f := range files {
		if content, err := os.ReadFile(f); err == nil && strings.Contains(string(content), text) {
			return ""
		}
	}
	return fmt.Sprintf("there is no test %q", mark)
}

// documents: every document that a page shows is one that the control plane accepts.
func (p programs) documents(t *testing.T) {
	shown := 0
	for name, text := range pages(t, p.root) {
		blocks, err := parse(text)
		must(t, err)
		for _, b := range blocks {
			if b.lang != "yaml" || !strings.Contains(strings.Join(b.lines, "\n"), "apiVersion:") || strings.HasPrefix(b.mark, "shown") {
				continue
			}
			shown++
			script := "cat > page.yaml <<'END_OF_PAGE'\n" + strings.Join(b.lines, "\n") + "\nEND_OF_PAGE\npilotctl validate -f page.yaml --fail-on warning || echo refused"
			if out := p.run(t, script); strings.Contains(out, "refused") {
				t.Errorf("%s:%d:\n%s", name, b.line, out)
			}
		}
	}
	if shown < 5 {
		t.Errorf("only %d documents", shown)
	}
}
