// Command pilotctl is the tool for operators: it checks configuration before it is used, and shows the state of a running control
// plane.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/ctl/installation"
	"github.com/pilotmesh/pilot/internal/ctl/machines"
	"github.com/pilotmesh/pilot/internal/ctl/proxyconfig"
	"github.com/pilotmesh/pilot/internal/ctl/registered"
	"github.com/pilotmesh/pilot/internal/ctl/remotes"
	"github.com/pilotmesh/pilot/internal/ctl/tag"
	"github.com/pilotmesh/pilot/internal/ctl/traffic"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/collateral"
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
		Short: "Check the configuration of a mesh and inspect its control plane",
		Long: `pilotctl checks configuration without a control plane (analyze). From a running control plane it shows the problems of its
configuration (problems), whether its proxies are up to date (proxy-status), what they are to have and what they have (proxy-config), where the configuration of a proxy comes from,
or why a proxy does not have it (explain), and waits until a change is in force (wait). It says whether a request is allowed, and
which rule decides (can-i), which gateway answers a request from outside (explain gateway), and which hosts gateways serve (get).
From the metrics of proxies it shows requests, errors and latencies per workload (top), and which workloads call each other (graph).
It adds proxies to workloads in files (kube-inject). It puts the control plane on a cluster, upgrades and removes it (install, upgrade, uninstall),
prints what that consists of (manifest), gives revisions other names (tag), and says whether a cluster is fit for it, and it for the cluster (check).
For proxies outside Kubernetes it issues tokens (token create), and it writes the files with which a virtual machine joins the mesh
(workload entry configure).

Exit codes: 0 success; 1 something is wrong; 2 the command line is invalid.`,
	}
	c.AddCommand(analyzeCommand(), validateCommand(), explainCommand(), describeCommand(), canICommand(), getCommand(), proxyStatus(), proxyconfig.Command(), problems(), traffic.TopCommand(), traffic.GraphCommand(),
		waitCommand(), registered.Command(), registered.ExportCommand(), logCommand(), machines.TokenCommand(os.LookupEnv), machines.WorkloadCommand(os.LookupEnv), injectCommand(),
		installation.InstallCommand(), installation.UpgradeCommand(), installation.UninstallCommand(), tag.Command(), installation.ManifestCommand(), checkCommand(), remotes.SecretCommand(), remotes.ClustersCommand(), bugReportCommand(), experimental(), collateral.Command(), versionCommand())
	c.PersistentPreRun = func(cmd *cobra.Command, _ []string) { console.Tunnel(cmd) }
	addCompletions(c)
	return c
}

// experimental holds the commands that istioctl has there, so that they can be typed as Istio's users are used to.
func experimental() *cobra.Command {
	c := &cobra.Command{Use: "experimental", Aliases: []string{"x", "exp"}, Short: "The commands that istioctl has here", Hidden: true}
	c.AddCommand(machines.WorkloadCommand(os.LookupEnv), describeCommand())
	return c
}
