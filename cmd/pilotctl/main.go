// Command pilotctl is the operator's tool: it checks configuration before it is used, and asks a running control plane
// how things are.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run"
)

func main() { os.Exit(program()) }

// program runs the command line and returns the exit code.
func program() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run.Command(ctx, root(), os.Args[1:])
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "pilotctl",
		Short: "Check a mesh's configuration and look into its control plane",
		Long: `pilotctl checks configuration without a control plane (analyze), and asks a running one what is wrong with the
configuration it serves (problems), how far its proxies are (proxy-status), and why they have what they have, or do not
have what they should (explain).

It exits with 0 when all is well, 1 when something is wrong, 2 when it was called in a way it does not understand.`,
	}
	c.AddCommand(analyzeCommand(), explainCommand(), proxyStatus(), problems(), run.Version(run.ReadBuild()))
	return c
}
