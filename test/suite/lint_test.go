package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	for _, c := range []struct{ name, file, text, want string }{
		{"a page", "page.md", "# Title\n\nThe control plane tells the proxy.\n", ":3:19:Pilot.Tell:"},
		{"a phrase over two lines", "page.md", "A request to the host, or to those\nof its namespace, fails.\n", "Pilot.Pronoun:"},
		{"a comment", "code.go", "package p\n\n// f returns what was read.\nfunc f() {}\n", ":3:14:Pilot.What:"},
		{"a comment behind code", "code.go", "package p\n\nvar f = 1 // read in vain\n", "Pilot.Phrase:"},
		{"a comment of a test", "code_test.go", "package p\n\n// TestF checks the virtual service.\nfunc TestF() {}\n", ":3:21:Pilot.Term:"},
		{"an error", "code.go", "package p\n\nvar errF = errors.New(\"the host lacks a port\")\n", "Pilot.Phrase:"},
		{"a help text", "code.go", "package p\n\nconst help = `f prints the rules.\nIt prints those of the mesh.`\n", "Pilot.Pronoun:"},
		{"plain words", "page.md", "The control plane sends the proxy its routes. `told`, `config map`.\n", ""},
		{"code", "code.go", "package p\n\n// told is set if f was sent.\nvar told, lacks = Tell(\"k8s\", \"nobody\"), anew.F()\n", ""},
		{"a text of a test", "code_test.go", "package p\n\nconst want = \"the host lacks a port of those that it needs\"\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := run("PROSE=" + file)
			if refused := err != nil; refused != (c.want != "") || !strings.Contains(out, c.want) {
				t.Errorf("%v, want %q in:\n%s", err, c.want, out)
			}
		})
	}
}
