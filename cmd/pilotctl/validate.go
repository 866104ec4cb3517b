package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/explain/analyze"
	"github.com/pilotmesh/pilot/internal/run"
)

// checkLevel refuses a word that is no level.
func checkLevel(failOn string) error {
	if !slices.Contains([]string{"error", "warning", "info", "never"}, strings.ToLower(failOn)) {
		return run.Usage(fmt.Errorf("--fail-on: %q is not a level; write error, warning, info or never", failOn))
	}
	return nil
}

func validateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "validate -f FILE|DIR|-",
		Aliases: []string{"v"},
		Short:   "Check each document of configuration alone",
		Long: `validate checks each document alone, in the same way as the webhook that checks objects of a cluster, and prints the problems: unknown
fields, values of a wrong type, values that the field cannot have, and combinations of fields that exclude each other. It is the same as
pilotctl analyze --alone.

It does not see whether a destination, a subset or a Gateway exists: pilotctl analyze also checks the relations between documents.

Exit codes: 0 no problems of the level of --fail-on or above; 1 such problems; 2 nothing to check, or an invalid command line.`,
		Example: `  pilotctl validate -f reviews.yaml
  pilotctl validate -f mesh/ -f extra.yaml --fail-on warning
  kubectl get virtualservices -A -o yaml | pilotctl validate -f -
  pilotctl validate -f mesh/ -o json | jq -r '.[].code' | sort | uniq -c`,
	}
	form := addOutput(c)
	files := c.Flags().StringArrayP("filename", "f", nil, "file or directory with documents, or - for the standard input; may be repeated")
	failOn := c.Flags().String("fail-on", "error", "exit with 1 if there are problems of this level or above: error, warning, info, or never")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		paths := slices.Concat(*files, args)
		if len(paths) == 0 {
			return run.Usage(errors.New("nothing to check; name files or directories with -f, or write -f - for the standard input"))
		}
		if err := checkLevel(*failOn); err != nil {
			return err
		}
		a := analyze.New()
		for _, path := range paths {
			if err := takePath(a, path, cmd.InOrStdin()); err != nil {
				return run.Usage(err)
			}
		}
		return report(cmd.OutOrStdout(), *form, *failOn, a, a.Problems())
	}
	return c
}
