// Package reference writes the documentation of the programs from their commands: one page of Markdown per program, and a man page per
// command. `make docs` runs it as a test of each program; the programs themselves do not contain it.
//
// Goroutines: none.
package reference

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// markdown returns the reference of a program: all its commands, each with its description, examples and flags.
func markdown(root *cobra.Command) ([]byte, error) {
	prepare(root)
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n\n%s.\n\nThis page is generated from the program by `make docs`; `%s COMMAND --help` shows the same.\n", root.Name(), root.Short, root.Name())
	for _, c := range commands(root) {
		var page bytes.Buffer
		if err := doc.GenMarkdownCustom(c, &page, anchor); err != nil {
			return nil, fmt.Errorf("the reference of %s: %w", c.CommandPath(), err)
		}
		out.WriteByte('\n')
		for line := range strings.Lines(page.String()) {
			out.WriteString(strings.TrimRight(line, " \t\n") + "\n")
		}
	}
	return append(bytes.TrimRight(out.Bytes(), "\n"), '\n'), nil
}

// keep compares the reference of a program with the file in which it is committed, or writes that file.
func keep(root *cobra.Command, file string, write bool) error {
	want, err := markdown(root)
	if err != nil {
		return err
	}
	if write {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			return fmt.Errorf("the reference of %s: %w", root.Name(), err)
		}
		return nil
	}
	got, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the reference of %s: %w; run `make docs`", root.Name(), err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s is not what the commands of %s say; run `make docs`", file, root.Name())
	}
	return nil
}

// Check compares the reference of a program with the file in which it is committed, or writes that file. It also writes the man pages
// into a directory, if man is not empty, and otherwise only tries to.
func Check(t testing.TB, root *cobra.Command, file string, write bool, man string) {
	t.Helper()
	if err := keep(root, file, write); err != nil {
		t.Error(err)
	}
	if man == "" {
		man = t.TempDir()
	}
	if err := writeMan(root, man); err != nil {
		t.Error(err)
	}
}

// anchor returns a link within the page instead of one to a page per command.
func anchor(file string) string {
	return "#" + strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".md"), "_", "-")
}

// writeMan writes a man page per command into a directory.
func writeMan(root *cobra.Command, dir string) error {
	prepare(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Pilot", Manual: "Pilot"}, dir); err != nil {
		return fmt.Errorf("the man pages of %s: %w", root.Name(), err)
	}
	return nil
}

// prepare adds the commands that cobra adds when a program runs, and leaves out the date.
func prepare(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range commands(root) {
		c.DisableAutoGenTag = true
		c.InitDefaultHelpFlag()
	}
}

// commands are a command and all below it that users see.
func commands(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			list = append(list, commands(sub)...)
		}
	}
	return list
}
