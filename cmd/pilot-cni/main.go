// Command pilot-cni captures the traffic of pods for clusters whose pods may not have NET_ADMIN. A container runtime starts it as CNI plugin; a
// DaemonSet runs it as host agent, which installs that plugin.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/agent/cni/plugin"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/collateral"
)

func main() { os.Exit(program()) }

// program is the plugin if the variable CNI_COMMAND is set, as container runtimes set it, and a command line otherwise.
func program() int {
	for _, v := range os.Environ() {
		if command, ok := strings.CutPrefix(v, "CNI_COMMAND="); ok && command != "" {
			return plugin.Plugin{Stderr: os.Stderr}.Run("CNI plugin " + plugin.Type + " " + run.ReadBuild().Version)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run.Command(ctx, root(os.Environ()), os.Args[1:])
}

func root(environ []string) *cobra.Command {
	c := &cobra.Command{
		Use:   "pilot-cni",
		Short: "Capture the traffic of pods without rights in the pods",
		Long: `pilot-cni makes the traffic of pods go through their proxies on clusters whose pods may not have NET_ADMIN. If the variable CNI_COMMAND is
set, it is a CNI plugin, which a container runtime starts for each pod. Otherwise it is a command: install is the host agent, which installs the
plugin and the rules of pods.`,
	}
	c.AddCommand(install(environ), collateral.Command(), run.Version(run.ReadBuild()))
	return c
}
