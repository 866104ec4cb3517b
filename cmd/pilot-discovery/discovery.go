package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/run"
)

func discovery(args []string) *cobra.Command {
	s := config.New(os.LookupEnv)
	c := &cobra.Command{
		Use:   "discovery",
		Short: "Serve the proxies of a mesh",
		Long: `discovery serves the proxies of a mesh until it is told to stop (SIGINT, SIGTERM).

It takes Istio's flags. Those that do nothing yet say so; flags it does not know are reported and otherwise ignored,
so that a command line written for Istio works. An empty address switches what listens there off.

It becomes ready (/ready) once everything configured has been read and proxies can connect.`,
		Example: `  # serve a directory; edit its files and watch the proxies follow
  pilot-discovery discovery --configDir=./mesh

  # the same on ports of your own, pages on one address only
  pilot-discovery discovery --configDir=./mesh --grpcAddr=127.0.0.1:15010 --httpAddr=127.0.0.1:8080 --monitoringAddr=`,
		Args:               cobra.NoArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
	}
	s.Flags(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Validate(); err != nil {
			return run.Usage(err)
		}
		log := logger(cmd.ErrOrStderr(), s)
		for _, remark := range s.Remarks(args[1:]) {
			log.Warn("about the command line", "remark", remark)
		}
		run.PaceCollector()
		began := time.Now()
		err := wire(s, log).Run(cmd.Context())
		log.Info("stopped", "after", time.Since(began).Round(time.Millisecond).String())
		return err
	}
	return c
}
