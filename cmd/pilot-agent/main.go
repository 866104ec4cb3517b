// Command pilot-agent runs next to each proxy. It writes Envoy's bootstrap, starts Envoy, restarts it after a crash, and stops it
// after running requests have had time to complete.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/agent"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/collateral"
)

func main() { os.Exit(program()) }

// program runs the command line and returns the exit code. Commands handle signals themselves, because the first and the second
// signal have different effects in the proxy command.
func program() int {
	s, args := config.New(os.Environ()), arguments(os.Args)
	c := root(s)
	if len(args) > 0 && args[0] == proxyName {
		args = append(args[:1:1], s.WithoutUnknown(args[1:])...)
	}
	return run.Command(context.Background(), c, args)
}

// arguments is the command line. If the program is run by a link with the name of a capture command, it runs that command.
func arguments(argv []string) []string {
	if name := filepath.Base(argv[0]); name == captureName || name == cleanName {
		return append([]string{name}, argv[1:]...)
	}
	return argv[1:]
}

func root(s *config.Settings) *cobra.Command {
	c := &cobra.Command{
		Use:   "pilot-agent",
		Short: "The agent next to each proxy of a service mesh",
		Long: `pilot-agent runs next to each proxy of a service mesh: it writes Envoy's bootstrap, starts Envoy, restarts it after a
crash, answers readiness probes, and stops it after running requests have had time to complete.`,
	}
	c.AddCommand(proxy(s), request(), wait(), captureTraffic(), cleanCapture(), collateral.Command(), run.Version(build{run.ReadBuild(), agent.IstioVersion}))
	return c
}

// build is the version of the program, and the version of Istio whose agent it replaces.
type build struct {
	run.Build
	Istio string `json:"istio"`
}

// String returns both in one line.
func (b build) String() string { return fmt.Sprintf("%v, for Istio %s", b.Build, b.Istio) }

// interruptible returns a context that the first signal cancels.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}
