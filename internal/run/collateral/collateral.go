// Package collateral is the command of a program that writes files about its own commands: pages in several formats, and completion for
// shells. Istio's programs have it, and packages of them call it while they are built.
//
// Goroutines: none.
package collateral

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// formats say which files are written.
type formats struct {
	dir                                     string
	all                                     bool
	markdown, man, bash, zsh, yaml, webpage bool
}

// Command returns the command "collateral", which writes files about its own program.
func Command() *cobra.Command {
	f := formats{}
	c := &cobra.Command{
		Use:    "collateral",
		Short:  "Write pages about the commands, and completion for shells",
		Hidden: true,
		Args:   cobra.NoArgs,
		Long: `collateral writes files about the commands of this program into a folder: pages as Markdown, man pages, YAML or HTML, and
completion for shells. Without a format it writes nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.write(cmd.Root()) },
	}
	flags := c.Flags()
	flags.StringVarP(&f.dir, "outputdir", "o", ".", "the folder for the files; it is made if it does not exist")
	flags.BoolVar(&f.all, "all", false, "write all formats")
	flags.BoolVarP(&f.markdown, "markdown", "m", false, "write a page of Markdown per command")
	flags.BoolVar(&f.man, "man", false, "write a man page per command")
	flags.BoolVar(&f.bash, "bash", false, "write completion for bash")
	flags.BoolVar(&f.zsh, "zsh", false, "write completion for zsh")
	flags.BoolVar(&f.yaml, "yaml", false, "write a file of YAML per command")
	flags.BoolVar(&f.webpage, "html_fragment_with_front_matter", false, "write one page of HTML about all commands, with a header for site generators")
	return c
}

// write writes the files of the wanted formats about a program.
func (f formats) write(root *cobra.Command) error {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("the folder of --outputdir cannot be made: %w", err)
	}
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true // the same program writes the same files
	for _, format := range []struct {
		wanted bool
		name   string
		write  func() error
	}{
		{f.markdown, "Markdown", func() error { return doc.GenMarkdownTree(root, f.dir) }},
		{f.man, "man pages", func() error {
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Pilot", Manual: "Pilot"}, f.dir)
		}},
		{f.yaml, "YAML", func() error { return doc.GenYamlTree(root, f.dir) }},
		{f.bash, "completion for bash", func() error { return root.GenBashCompletionFile(filepath.Join(f.dir, root.Name()+".bash")) }},
		{f.zsh, "completion for zsh", func() error { return root.GenZshCompletionFile(filepath.Join(f.dir, "_"+root.Name())) }},
		{f.webpage, "HTML", func() error { return os.WriteFile(filepath.Join(f.dir, root.Name()+".html"), webpage(root), 0o644) }},
	} {
		if !format.wanted && !f.all {
			continue
		}
		if err := format.write(); err != nil {
			return fmt.Errorf("%s about %s cannot be written: %w", format.name, root.Name(), err)
		}
	}
	return nil
}

// webpage returns a page of HTML about a program, without a head and body of its own.
func webpage(root *cobra.Command) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "---\ntitle: %s\ndescription: %q\ngenerator: pilot-collateral\n---\n", root.Name(), root.Short)
	section(&out, root)
	return out.Bytes()
}

// section writes about a command and all commands below it that users see.
func section(out *bytes.Buffer, c *cobra.Command) {
	text := func(format, s string) {
		if s != "" {
			fmt.Fprintf(out, format, html.EscapeString(s))
		}
	}
	text("<h2>%s</h2>\n", c.CommandPath())
	description := c.Long
	if description == "" {
		description = c.Short
	}
	text("<p>%s</p>\n", description)
	if c.Runnable() {
		text("<pre>%s</pre>\n", c.UseLine())
	}
	text("<pre>%s</pre>\n", c.Example)
	text("<pre>%s</pre>\n", c.LocalFlags().FlagUsages())
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			section(out, sub)
		}
	}
}
