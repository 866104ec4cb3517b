package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// program has a visible command with a flag, and a hidden one.
func program() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool", Short: "A tool"}
	do := &cobra.Command{Use: "do THING", Short: "Do a thing", Long: "do does a thing.", Example: "  tool do this", Run: run}
	do.Flags().String("how", "well", "how it is done")
	root.AddCommand(do, &cobra.Command{Use: "secret", Short: "Hidden", Hidden: true, Run: run})
	return root
}

func TestMarkdown(t *testing.T) {
	text, err := markdown(program())
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, want := range []string{
		"# tool\n\nA tool.\n", "\n## tool do\n", "do does a thing.", "tool do THING [flags]", "  tool do this\n", `--how string   how it is done (default "well")`,
		"* [tool](#tool)", "* [tool do](#tool-do)", "\n## tool completion bash\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	if strings.Contains(page, "secret") || strings.Contains(page, "Auto generated") || strings.Contains(page, " \n") {
		t.Errorf("a hidden command, a date, or blanks at the end of a line:\n%s", page)
	}
}

func TestMan(t *testing.T) {
	dir := t.TempDir()
	if err := writeMan(program(), dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "tool-do.1"))
	if err != nil || !strings.Contains(string(text), `.TH "TOOL-DO" "1"`) || !strings.Contains(string(text), "how it is done") {
		t.Errorf("%v\n%s", err, text)
	}
	if err := writeMan(program(), filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there")
	}
}

// TestKeep: the error about a missing or old page says what to do.
func TestKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tool.md")
	for _, c := range []struct {
		write bool
		want  string
	}{{false, "make docs"}, {true, ""}, {false, ""}} {
		if err := keep(program(), file, c.write); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.write, err)
		}
	}
	other := program()
	other.Short = "Another tool"
	if err := keep(other, file, false); err == nil || !strings.Contains(err.Error(), "is not what the commands of tool say; run `make docs`") {
		t.Error(err)
	}
}
