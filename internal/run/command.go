package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of all programs.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// usageError is an error in how a program was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks err as an error in how the program was called. It returns nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// Exit makes a command that fails with err exit with a code of its own, so that scripts can distinguish failures.
func Exit(code int, err error) error { return exitError{err, code} }

// ErrFailed makes a command exit with ExitFailed without an error message, because the command has printed the reason already.
var ErrFailed = errors.New("failed")

// Command runs a command line and returns the exit code of the program. It writes errors to root's error output.
func Command(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SilenceErrors, root.SilenceUsage = true, true
	refuseUnknown(root)
	showForm(root)
	started := false // errors before this is set are errors in the command line
	before := root.PersistentPreRun
	root.PersistentPreRun = func(cmd *cobra.Command, args []string) {
		started = true
		if before != nil {
			before(cmd, args)
		}
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	if !errors.Is(err, ErrFailed) {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	}
	if _, usage := errors.AsType[usageError](err); usage || !started {
		fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for usage.\n", cmd.CommandPath())
		return ExitUsage
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	return ExitFailed
}

// refuseUnknown makes commands that only group other commands refuse a word that names none of them. Without that, cobra prints their help and
// the program exits with ExitDone.
func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	if c.Runnable() || !c.HasParent() {
		return // cobra refuses unknown words at the root
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2 // as at the root
		if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
			text += "; did you mean " + strings.Join(names, " or ") + "?"
		}
		return Usage(errors.New(text))
	}
}

// showForm makes commands that refuse the number of their arguments say how to write them.
func showForm(c *cobra.Command) {
	for _, sub := range c.Commands() {
		showForm(sub)
	}
	accept := c.Args
	if accept == nil || !strings.Contains(c.Use, " ") {
		return // it takes any, or none
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := accept(cmd, args); err != nil {
			return fmt.Errorf("%w; write: %s", err, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		}
		return nil
	}
}

// Version returns the command that prints the version of the program: build as text, or as JSON.
func Version(build fmt.Stringer) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "text":
				_, err := fmt.Fprintln(cmd.OutOrStdout(), build)
				return err
			case "json":
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(build)
			default:
				return Usage(fmt.Errorf("--output: %q is neither text nor json", output))
			}
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "format: text or json")
	return c
}
