package collateral_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run/collateral"
)

// program has a visible command with a flag, and the command that writes about it.
func program(args ...string) *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "A <tool>"}
	do := &cobra.Command{Use: "do THING", Short: "Do a thing", Run: func(*cobra.Command, []string) {}}
	do.Flags().String("how", "well", "how it is done")
	root.AddCommand(do, collateral.Command())
	root.SetArgs(append([]string{"collateral"}, args...))
	return root
}

// written returns the names of files, apart from the pages of the commands for completion.
func written(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.Contains(f.Name(), "completion") {
			names = append(names, f.Name())
		}
	}
	return names
}

// TestFormats checks which files each format writes.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		flags, want []string
	}{
		{nil, nil},
		{[]string{"--markdown"}, []string{"tool.md", "tool_do.md"}},
		{[]string{"-m", "--man"}, []string{"tool-do.1", "tool.1", "tool.md", "tool_do.md"}},
		{[]string{"--bash"}, []string{"tool.bash"}},
		{[]string{"--zsh"}, []string{"_tool"}},
		{[]string{"--yaml"}, []string{"tool.yaml", "tool_do.yaml"}},
		{[]string{"--html_fragment_with_front_matter"}, []string{"tool.html"}},
		{[]string{"--all"}, []string{"_tool", "tool-do.1", "tool.1", "tool.bash", "tool.html", "tool.md", "tool.yaml", "tool_do.md", "tool_do.yaml"}},
	} {
		dir := filepath.Join(t.TempDir(), "new", "folder")
		if err := program(append(c.flags, "--outputdir", dir)...).Execute(); err != nil {
			t.Errorf("%q: %v", c.flags, err)
			continue
		}
		if got := written(t, dir); !slices.Equal(got, c.want) {
			t.Errorf("%q writes %q, want %q", c.flags, got, c.want)
		}
	}
}

// TestContent checks that every format has the flag of the command, apart from completion, which asks the program.
func TestContent(t *testing.T) {
	dir := t.TempDir()
	if err := program("--all", "-o", dir).Execute(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"tool_do.md": "--how", "tool-do.1": "how it is done", "tool_do.yaml": "how it is done", "tool.html": "--how string",
		"tool.bash": "complete", "_tool": "compdef",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q (%v)", name, want, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "tool.html"))
	if err != nil || !strings.HasPrefix(string(page), "---\ntitle: tool\n") || !strings.Contains(string(page), "<p>A &lt;tool&gt;</p>") || strings.Contains(string(page), "collateral</h2>") {
		t.Errorf("%s (%v)", page, err)
	}
}

// TestFailure checks that a folder that cannot be made is named.
func TestFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := program("--all", "-o", filepath.Join(file, "below"))
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "--outputdir") {
		t.Error(err)
	}
}
