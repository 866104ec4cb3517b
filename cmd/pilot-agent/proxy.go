package main

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/agent"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/run"
)

func proxy() *cobra.Command {
	s := config.New(os.Environ())
	c := &cobra.Command{
		Use:   "proxy [sidecar]",
		Short: "Run a proxy",
		Long: `proxy runs one Envoy until it is told to stop.

It takes Istio's flags and environment: POD_NAME, POD_NAMESPACE, INSTANCE_IP, SERVICE_ACCOUNT, ISTIO_META_*,
ISTIO_METAJSON_*, PROXY_CONFIG and others. What it does not use yet it names in a warning. xDS is in plaintext so far:
TLS to the control plane is not supported yet.

It serves Envoy the certificates and roots that lie in files: those that a DestinationRule names, the system's, and a
workload's own in ./etc/certs or ./var/run/secrets/workload-spiffe-credentials. It gets none from a certificate authority
yet. It watches them, and /debug/secretz of the status server tells how each stands. Its socket is
./var/run/secrets/workload-spiffe-uds/socket, or in --configPath if that is not the default. An SDS server of somebody
else's is used instead if WORKLOAD_IDENTITY_SOCKET_FILE names its socket in the former directory.

SIGTERM and SIGINT drain: clients are asked to go elsewhere, requests under way get terminationDrainDuration (or, with
EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true, as long as connections are open), then Envoy ends. A second signal ends it at once.

Exit codes: 0 Envoy ended as it was told to; 1 it crashed too often, was cut off, or could not be started; 2 the command
line, environment or ProxyConfig is wrong.`,
		Example: `  # a sidecar of a control plane on this machine, where nothing intercepts traffic
  ISTIO_META_INTERCEPTION_MODE=NONE POD_NAME=web-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.1 \
    pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15010

  # a second one beside it, on ports of its own
  ISTIO_META_INTERCEPTION_MODE=NONE POD_NAME=api-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.2 \
    pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15010 --configPath=/tmp/api-1 \
    --proxyAdminPort=16000 --statusPort=16020 --envoyStatusPort=16021 --envoyPrometheusPort=16090`,
		Args: cobra.MaximumNArgs(1),
	}
	s.Flags(c.Flags())
	c.RunE = func(cmd *cobra.Command, args []string) error {
		// From here on, or a signal that comes early would end the agent without its Envoy.
		stop := make(chan os.Signal, 8)
		signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(stop)
		if len(args) > 0 {
			s.Role = args[0]
		}
		if err := s.Load(); err != nil {
			return run.Usage(err)
		}
		log := logger(cmd.ErrOrStderr(), s)
		for _, remark := range s.Warnings() {
			log.Warn("settings", "remark", remark)
		}
		return agent.Run(cmd.Context(), s, agent.Host{Stdout: os.Stdout, Stderr: os.Stderr, Stop: stop}, log)
	}
	return c
}

// logger writes lines of text, or of JSON.
func logger(w io.Writer, s *config.Settings) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
