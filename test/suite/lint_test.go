package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/test/repo"
)

// TestProse: `make lint-prose` refuses a bad sentence in each kind of text that it reads, and names its rule and its line. It accepts the same words
// in code, and in the texts of tests.
func TestProse(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "lint-prose"}, args...)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if plan, err := run("--dry-run"); err != nil || strings.Contains(plan, "go install") {
		t.Skipf("Vale is not built, `make lint-prose` builds it: %v", err)
	}
	archive, err := txtar.ParseFile("testdata/prose.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(archive.Comment), "\n\n")
	wants := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		file, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		wants[file] = strings.TrimSpace(want)
	}
	if len(wants) != len(archive.Files) || len(wants) == 0 {
		t.Fatalf("the table has %d files, and the archive %d", len(wants), len(archive.Files))
	}
	for _, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) {
			want, listed := wants[f.Name]
			if !listed {
				t.Fatal("the table does not list it")
			}
			file := filepath.Join(t.TempDir(), f.Name)
			if err := os.WriteFile(file, f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := run("PROSE=" + file)
			if refused := err != nil; refused != (want != "") || !strings.Contains(out, want) {
				t.Errorf("%v, want %q in:\n%s", err, want, out)
			}
		})
	}
}
