package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/agent"
	"github.com/pilotmesh/pilot/internal/agent/capture"
	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/run"
)

// Names of the capture commands, which the program may also be called by.
const (
	captureName = "istio-iptables"
	cleanName   = "istio-clean-iptables"
)

// exitNotCaptured is the exit code of a validation that failed. The repair controller of Istio's CNI plugin acts on it.
const exitNotCaptured = 126

const captureHelp = `istio-iptables makes connections of the present network namespace go through its proxy.

Inbound connections to the ports -b go to the proxy's port -z; outbound connections to the ranges -i and the ports -q go to its port
-p. The proxy's own connections (-u, -g) are left alone, except connections to its own workload. "*" means all. Each flag can also be
given as a variable: its name in capitals with underscores, such as ISTIO_INBOUND_PORTS. A flag wins over a variable. More variables:

  ISTIO_OUTBOUND_OWNER_GROUPS          groups whose outbound connections are captured (default "*")
  ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE  groups whose outbound connections are not captured
  ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR    loopback addresses that the proxy uses to call the application (default 127.0.0.1/32)
  ENVOY_USER                           name of the proxy's user (default istio-proxy, or the ID 1337 if there is none)

The rules are written by iptables (nft or legacy, whichever is in use) or, with --native-nftables, by nft. Rules of others stay as
they are. Each table changes at once. To repeat a capture changes nothing. If iptables has the rules of another capture, the
command fails, unless --reconcile lets it replace them. A failure leaves everything as it was.

Exit codes: 0 the rules are in place (and work, with --run-validation); 126 the validation failed; 1 the rules could not be written;
2 the command line is invalid.`

func captureTraffic() *cobra.Command {
	c := &cobra.Command{
		Use:   captureName,
		Short: "Make connections go through the proxy",
		Long:  captureHelp,
		Example: `  # all connections except inbound ones to the proxy's own ports
  pilot-agent istio-iptables -i '*' -b '*' -d 15090,15021,15020

  # outbound connections to two ranges, and DNS
  pilot-agent istio-iptables -i 10.96.0.0/16,fd96::/112 --dual-stack --redirect-dns

  # see what would be done
  pilot-agent istio-iptables -i '*' -b '*' --native-nftables -n`,
		Args: cobra.NoArgs,
	}
	flags, logs := settings.NewFlags(c.Flags()), newLogFlags(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		job, stop, err := prepare(cmd, flags, logs)
		if err != nil {
			return err
		}
		defer stop()
		err = job.Apply(cmd.Context())
		if errors.Is(err, capture.ErrNotCaptured) {
			return run.Exit(exitNotCaptured, err)
		}
		return err
	}
	return c
}

func cleanCapture() *cobra.Command {
	c := &cobra.Command{
		Use:   cleanName,
		Short: "Remove what istio-iptables has made",
		Long: `istio-clean-iptables removes what captures have made in the present network namespace: rules and chains of iptables (of both
variants) and of nftables, routing rules, routes and addresses. Rules of others stay as they are. It accepts the flags of the capture
and does not need them, except -t and -r to remove the routing rule of another program's capture.`,
		Example: `  pilot-agent istio-clean-iptables`,
		Args:    cobra.NoArgs,
	}
	flags, logs := settings.NewFlags(c.Flags()), newLogFlags(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		job, stop, err := prepare(cmd, flags, logs)
		if err != nil {
			return err
		}
		defer stop()
		return job.Clean(cmd.Context())
	}
	return c
}

// logFlags are the flags about the log, which injection gives to the init container as well.
type logFlags struct {
	levels string
	json   bool
}

func newLogFlags(set *pflag.FlagSet) *logFlags {
	f := &logFlags{}
	set.StringVar(&f.levels, "log_output_level", "info", "log level: debug, info, warn, error or none; PART:LEVEL,... are the levels of parts of the agent, as for the command proxy")
	set.BoolVar(&f.json, "log_as_json", false, "write the log as JSON lines")
	return f
}

// logger returns the logger. Levels that cannot be read do not keep traffic from being captured.
func (f *logFlags) logger(w io.Writer) *slog.Logger {
	log := logging.New(w, f.json, agent.Parts())
	if err := logging.Of(log).Set(f.levels); err != nil {
		log.Warn("settings", "remark", "--log_output_level: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return log
}

// prepare reads the environment, and lets a signal end the command.
func prepare(cmd *cobra.Command, flags *settings.Flags, logs *logFlags) (capture.Capture, func(), error) {
	if err := flags.FromEnvironment(os.Environ()); err != nil {
		return capture.Capture{}, nil, err
	}
	ctx, stop := interruptible(cmd)
	cmd.SetContext(ctx)
	return capture.Capture{Flags: flags, Out: cmd.OutOrStdout(), Log: logs.logger(cmd.ErrOrStderr()), UID: os.Getuid()}, stop, nil
}
