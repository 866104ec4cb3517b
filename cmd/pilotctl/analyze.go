package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run"
)

func analyze() *cobra.Command {
	c := &cobra.Command{
		Use:   "analyze [FILE|DIR|-]...",
		Short: "Check configuration without a control plane",
		Long: `analyze reads configuration as the control plane does and says what is wrong with it: errors, for which a document
would be refused, and warnings, for what would be ignored or probably does not do what was meant.

Of a directory all *.yaml, *.yml and *.json files are read, at any depth; "-" is the standard input.
It exits with 1 if there are errors; warnings do not count.`,
		Example: `  pilotctl analyze mesh/
  pilotctl analyze reviews.yaml --meshConfig mesh.yaml
  kubectl get virtualservices -A -o yaml | pilotctl analyze -
  pilotctl analyze mesh/ -o json | jq '.[] | select(.level == "error")'`,
	}
	form := addOutput(c)
	meshConfigs := c.Flags().StringSlice("meshConfig", nil, "file with mesh settings (MeshConfig) to check")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args)+len(*meshConfigs) == 0 {
			return run.Usage(errors.New("say what to check: files, directories, or - for the standard input"))
		}
		a := analysis{first: make(map[api.Key]api.Position)}
		for _, path := range args {
			if err := a.path(path, cmd.InOrStdin()); err != nil {
				return run.Usage(err)
			}
		}
		for _, path := range *meshConfigs {
			if err := a.meshConfig(path); err != nil {
				return run.Usage(err)
			}
		}
		return a.report(cmd.OutOrStdout(), *form)
	}
	return c
}

// analysis is what was found.
type analysis struct {
	files, objects int
	first          map[api.Key]api.Position // where each object was seen first
	found          []admin.Problem
}

// path checks a file or all files of a directory. The error says that there is nothing to check.
func (a *analysis) path(path string, stdin io.Reader) error {
	if path == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, api.MaxFile+1))
		if err != nil {
			return fmt.Errorf("reading the standard input: %w", err)
		}
		a.file("stdin", data)
		return nil
	}
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && name == path:
			return err
		case err != nil:
			a.unreadable(name, err)
			return nil
		case entry.IsDir() || name != path && !document(name):
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil && name == path {
			return err
		}
		if err != nil {
			a.unreadable(name, err)
			return nil
		}
		a.file(name, data)
		return nil
	})
}

// document reports whether a file is read when its directory is.
func document(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func (a *analysis) unreadable(name string, err error) {
	a.found = append(a.found, admin.Problem{File: name, Level: api.Error.String(), Reason: err.Error()})
}

// file checks the documents of a file.
func (a *analysis) file(name string, data []byte) {
	a.files++
	for _, doc := range api.Decode(name, data) {
		doc.Check()
		if doc.Object != nil {
			a.objects++
		}
		if doc.Identified {
			a.once(&doc)
		}
		a.add(doc.Problems)
	}
}

// once objects to a second document of the same object.
func (a *analysis) once(doc *api.Document) {
	first, seen := a.first[doc.Key]
	if !seen {
		a.first[doc.Key] = doc.Position
		return
	}
	doc.Problems = append(doc.Problems, api.Problem{
		Object: doc.Key, Position: doc.Position, Severity: api.Error, Field: "metadata.name",
		Reason: fmt.Sprintf("this object was declared already at %s, which is the one in force; remove or rename one", first),
	})
}

func (a *analysis) meshConfig(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	a.files++
	_, problems := api.DecodeMesh(path, data)
	a.add(problems)
	return nil
}

func (a *analysis) add(problems []api.Problem) {
	for _, p := range problems {
		a.found = append(a.found, admin.NewProblem(p))
	}
}

// report writes what was found. The error stands for errors among it.
func (a *analysis) report(w io.Writer, form string) error {
	errors, warnings := tally(a.found)
	if form == text {
		p := painter(w)
		for _, one := range a.found {
			fmt.Fprintln(w, p.line(one))
		}
		fmt.Fprintf(w, "%s, %s in %s with %s\n", count(errors, "error"), count(warnings, "warning"), count(a.files, "file"), count(a.objects, "usable object"))
	} else if err := write(w, form, append([]admin.Problem{}, a.found...)); err != nil {
		return err
	}
	if errors > 0 {
		return run.ErrFailed
	}
	return nil
}
