package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The exit codes of all programs.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// usageError is a mistake in how a program was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as a mistake in how the program was called.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// ErrFailed ends a command with the exit code of a failure when everything has been said already.
var ErrFailed = errors.New("failed")

// Command runs a command line and returns the program's exit code. What went wrong is written to root's error output.
func Command(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SilenceErrors, root.SilenceUsage = true, true
	begun := false // what goes wrong before is a mistake in the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	if !errors.Is(err, ErrFailed) {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
	}
	if _, usage := errors.AsType[usageError](err); usage || !begun {
		fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for how to use it.\n", cmd.CommandPath())
		return ExitUsage
	}
	return ExitFailed
}

// Version is the command that prints which program this is.
func Version(build any) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which program this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), build)
			return err
		},
	}
}
