// Command pilot-agent runs beside each proxy: it writes Envoy's bootstrap, starts Envoy, keeps it running, and ends it
// without cutting off requests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/agent"
	"github.com/pilotmesh/pilot/internal/run"
)

func main() { os.Exit(program()) }

// program runs the command line and returns the exit code. Signals are the commands' own business: to the proxy command
// a first one means something else than a second one.
func program() int {
	return run.Command(context.Background(), root(), os.Args[1:])
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "pilot-agent",
		Short: "The agent beside each proxy of a service mesh",
		Long: `pilot-agent runs beside each proxy of a service mesh: it writes Envoy's bootstrap, starts Envoy, starts it again after
a crash, tells probes whether it is ready, and ends it without cutting off requests.`,
	}
	c.AddCommand(proxy(), request(), wait(), run.Version(fmt.Sprintf("%v, for Istio %s", run.ReadBuild(), agent.IstioVersion)))
	return c
}

// interruptible ends with the first signal.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}
