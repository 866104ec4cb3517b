package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/explain/analyze"
	"github.com/pilotmesh/pilot/internal/explain/sarif"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/filewatch"
)

// sarifForm is the output format SARIF, which code hosts show beside the files.
const sarifForm = "sarif"

// analyzeHelp is the long help of the command.
const analyzeHelp = `analyze reads configuration in the same way as the control plane and prints its problems, in the same words. An error
means that the document would be refused, or that something certainly fails: a route to a host, port or subset that does not exist. A
warning means that a part of it would be ignored, or probably has another effect than intended.

Several problems that differ only in their object are one line, which names the objects; the other forms have each.

The code in brackets at the end of a line stays the same in later releases; pilotctl explain CODE prints its page, with an example and the fix.
-o sarif writes SARIF 2.1.0, which code hosts and editors show beside the lines of the files.

It also checks the relations between all given objects: destinations and subsets that are not declared, hosts, ports and
addresses that are declared twice, rules that never apply. Services, endpoint slices, pods, namespaces and workloads such as Deployments
count among these objects; objects of other kinds are counted in one line. Pass all configuration of a mesh in one call, or use --alone to
check each document alone.

In a directory, all *.yaml, *.yml and *.json files are read, including subdirectories; "-" is the standard input. A file without
objects, such as a package.json or a template, has one remark of the level info, and so has a Helm chart: pass what helm template prints.

Without --meshConfig, the mesh settings come from the first document that has some: an IstioOperator, an Istio resource of its operator,
the values of a Helm chart, or the ConfigMap of a control plane (key mesh). A file
without apiVersion and kind that is named on the command line may contain mesh settings (MeshConfig) or mesh networks
(MeshNetworks).

Exit codes: 0 no problems of the level of --fail-on or above; 1 such problems; 2 nothing to check, or an invalid command line.`

func analyzeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "analyze [FILE|DIR|-]...",
		Short: "Check configuration without a control plane",
		Long:  analyzeHelp,
		Example: `  pilotctl analyze mesh/
  pilotctl analyze mesh/ --meshConfig mesh-settings.yaml
  pilotctl analyze mesh/ --fail-on warning
  kubectl get services,serviceentries,virtualservices,destinationrules -A -o yaml | pilotctl analyze -
  pilotctl analyze mesh/ -o json | jq '.[] | select(.level == "error")'
  pilotctl analyze mesh/ -o sarif > pilot.sarif`,
	}
	form := addOutput(c, sarifForm)
	meshConfigs := c.Flags().StringSlice("meshConfig", nil, "file with mesh settings (MeshConfig) to check and to apply to the other checks; --mesh-config is the same")
	networks := c.Flags().StringSlice("networksConfig", nil, "file with mesh networks (MeshNetworks) to check; --mesh-networks is the same")
	domain := c.Flags().String("domain", "cluster.local", "suffix of the names of services in the cluster")
	failOn := c.Flags().String("fail-on", "error", "exit with 1 if there are problems of this level or above: error, warning, info, or never; --failure-threshold is the same")
	alone := c.Flags().Bool("alone", false, "check each document alone, without relations to other documents")
	c.Flags().SetNormalizeFunc(analyzeFlag)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args)+len(*meshConfigs)+len(*networks) == 0 {
			return run.Usage(errors.New("nothing to check; name files or directories, or write - for the standard input"))
		}
		if err := checkLevel(*failOn); err != nil {
			return err
		}
		a := analyze.New()
		a.Read = filewatch.Read
		read := func(names []string, take func(name string, data []byte)) error {
			for _, name := range names {
				data, err := os.ReadFile(name)
				if err != nil {
					return run.Usage(err)
				}
				take(name, data)
			}
			return nil
		}
		if err := errors.Join(read(*meshConfigs, a.Mesh), read(*networks, a.Networks)); err != nil {
			return err
		}
		for _, path := range args {
			if err := takePath(a, path, cmd.InOrStdin()); err != nil {
				return run.Usage(err)
			}
		}
		if *alone {
			return report(cmd.OutOrStdout(), *form, *failOn, a, a.Problems())
		}
		return report(cmd.OutOrStdout(), *form, *failOn, a, a.AllProblems(*domain))
	}
	return c
}

// analyzeFlag maps other spellings of a flag of analyze to its name.
func analyzeFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "mesh-config":
		name = "meshConfig"
	case "failure-threshold":
		name = "fail-on"
	case "mesh-networks", "meshNetworks":
		name = "networksConfig"
	}
	return pflag.NormalizedName(name)
}

// takePath adds a file, or all files of a directory. It returns an error if the path cannot be read at all.
func takePath(a *analyze.Analysis, path string, stdin io.Reader) error {
	if path == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, api.MaxFile+1))
		if err != nil {
			return fmt.Errorf("reading the standard input: %w", err)
		}
		takeFile(a, "stdin", data)
		return nil
	}
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && name == path:
			return err
		case err != nil:
			a.Unreadable(name, err)
			return nil
		case entry.IsDir() || name != path && !document(name):
			return nil
		}
		data, err := os.ReadFile(name)
		switch {
		case err != nil && name == path:
			return err
		case err != nil:
			a.Unreadable(name, err)
		case name == path:
			takeFile(a, name, data)
		default:
			a.File(name, data)
		}
		return nil
	})
}

// takeFile adds a file that was named on the command line. It may contain mesh settings instead of objects.
func takeFile(a *analyze.Analysis, name string, data []byte) {
	switch api.SettingsKind(data) {
	case "MeshConfig":
		a.Mesh(name, data)
	case "MeshNetworks":
		a.Networks(name, data)
	default:
		a.File(name, data)
	}
}

// document reports whether a file of a directory is read.
func document(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// report writes the problems. It returns ErrFailed if there are some of the level failOn or above.
func report(w io.Writer, form, failOn string, a *analyze.Analysis, problems []api.Problem) error {
	found := make([]admin.Problem, 0, len(problems))
	for _, p := range problems {
		found = append(found, admin.NewProblem(p))
	}
	errors, warnings := tally(found)
	if form == text {
		p := painter(w)
		for _, one := range analyze.Fold(problems) {
			fmt.Fprintln(w, p.line(admin.NewProblem(one)))
		}
		if kinds := a.Unread; len(kinds) > 0 {
			fmt.Fprintf(w, "%s of %s that Pilot does not read: %v\n", count(kinds.Total(), "object"), count(len(kinds), "kind"), kinds)
		}
		fmt.Fprintf(w, "%s, %s in %s with %s\n", count(errors, "error"), count(warnings, "warning"), count(a.Files, "file"), count(a.Objects, "usable object"))
	} else if form == sarifForm {
		if err := write(w, console.JSON, sarif.New(run.ReadBuild().Version, problems)); err != nil {
			return err
		}
	} else if err := write(w, form, found); err != nil {
		return err
	}
	switch strings.ToLower(failOn) {
	case "error":
		if errors == 0 {
			return nil
		}
	case "warning":
		if errors+warnings == 0 {
			return nil
		}
	case "never":
		return nil
	}
	if len(found) > 0 {
		return run.ErrFailed
	}
	return nil
}
