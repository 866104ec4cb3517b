// Command pilot-discovery is the control plane: it reads the configuration of a mesh and keeps the xDS state of every proxy up to
// date.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/collateral"
)

func main() { os.Exit(program()) }

// program runs the command line and returns the exit code.
func program() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal then has its default effect and ends the program immediately
	args := os.Args[1:]
	return run.Command(ctx, root(args), args)
}

func root(args []string) *cobra.Command {
	c := &cobra.Command{
		Use:   "pilot-discovery",
		Short: "The control plane of a service mesh",
		Long: `pilot-discovery reads the configuration of a mesh (Istio's APIs, from a directory of YAML), determines its
services, and keeps every connected proxy (Envoy) up to date by xDS.`,
	}
	c.AddCommand(discovery(args), requestCommand(), collateral.Command(), run.Version(run.ReadBuild()))
	return c
}
