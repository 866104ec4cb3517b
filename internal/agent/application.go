package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/agent/probe"
	"github.com/pilotmesh/pilot/internal/agent/sts"
	"github.com/pilotmesh/pilot/internal/agent/tap"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/run"
)

// probes returns the handler of the application's probes.
func probes(s *config.Settings, c boot.Config, log *slog.Logger) http.Handler {
	return probe.Handler(probe.Options{
		Probes: s.Application.Probes, Address: s.Application.Address, Own: s.Addresses, StatusPort: c.StatusPort,
		HTTP1Only: !s.Application.HTTP2, KeepAlive: s.Application.KeepAlive, Log: log,
	})
}

// serveTokens adds the token exchange to the group, if there is one.
func serveTokens(ctx context.Context, group *run.Group, s *config.Settings, c boot.Config, log *slog.Logger) error {
	if s.STS.Port == 0 {
		return nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	s.Certificates.Compliance.Apply(secure)
	if s.STS.Roots != "" {
		text, err := disk.Read(s.STS.Roots)
		if err != nil {
			return run.Usage(fmt.Errorf("STS_ROOT_CA: %w", err))
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(text) {
			return run.Usage(fmt.Errorf("STS_ROOT_CA: %s has no certificate in PEM", s.STS.Roots))
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(loopbackHost(c), strconv.Itoa(int(s.STS.Port))))
	if err != nil {
		return fmt.Errorf("the token exchange has no port: %w; free the port or set another one with --stsPort (0 for none)", err)
	}
	group.Add(run.HTTP("token exchange", l, sts.Handler(sts.Options{Endpoint: s.STS.Endpoint, TLS: secure, Log: log}), statusTimeout, log))
	return nil
}

// serveDebug adds the server of the control plane's debug pages, if the settings ask for one. It must not keep the proxy from starting: if its
// port is taken, for example by another agent on this host, the agent runs without it.
func serveDebug(ctx context.Context, group *run.Group, s *config.Settings, c boot.Config, dialer *upstream.Dialer, log *slog.Logger) {
	if s.DebugPort == 0 {
		return
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(loopbackHost(c), strconv.Itoa(int(s.DebugPort))))
	if err != nil {
		log.Warn("the debug pages of the control plane are not served here; set another port with PROXY_XDS_DEBUG_VIA_AGENT_PORT, or none with PROXY_XDS_DEBUG_VIA_AGENT=false", "error", err)
		return
	}
	group.Add(run.HTTP("debug pages of the control plane", l, tap.Handler(calls(dialer), c.Node), statusTimeout, log))
}
