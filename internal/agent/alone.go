package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/secret"
	"github.com/pilotmesh/pilot/internal/agent/status"
	"github.com/pilotmesh/pilot/internal/run"
)

// writeGRPC writes the bootstrap for gRPC libraries that are their own data plane, if the settings ask for one.
func writeGRPC(s *config.Settings, c boot.Config, log *slog.Logger) error {
	if s.GRPCBootstrap == "" {
		return nil
	}
	var files boot.Files
	files.Certificate, files.Key, files.Roots = mountedFiles(s)
	if out := s.Certificates.Output; files.Certificate == "" && out != "" {
		files.Certificate, files.Key, _ = secret.KeptFiles(out)
		files.Roots = secret.BundleFile(out)
	}
	if files.Certificate == "" && hasCertificate(s) {
		log.Warn("settings", "remark", "gRPC libraries read certificates from files, and there are none: name a folder for them with OUTPUT_CERTS")
	}
	text, err := c.GRPC(files)
	if err != nil {
		return err
	}
	return write(s.GRPCBootstrap, text)
}

// alone runs the agent without Envoy, for programs that use its sockets themselves.
func alone(ctx context.Context, page net.Listener, c boot.Config, s *config.Settings, h Host, log *slog.Logger) error {
	group := run.New(log, noLimit)
	end := &ending{ended: make(chan struct{})}
	parts := status.Parts{Envoy: absent{}, Life: end, Probes: probes(s, c, log), Targets: s.Application.Targets, LocalMetrics: s.LocalMetrics, Log: log}
	if _, _, err := serve(ctx, group, s, c, nil, &parts); err != nil {
		return errors.Join(err, closed(page))
	}
	if page != nil {
		group.Add(run.HTTP("status", page, status.Handler(parts), statusTimeout, log))
	}
	group.Add(run.Actor{Name: "end", Run: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-end.ended:
			return errEnvoyEnded
		}
	}})
	group.Add(signals(h.Stop, end.End, log))
	log.Info("starting the agent without Envoy", "node", c.Node.GetId(), "discovery", s.Proxy.GetDiscoveryAddress(), "xds", c.Relay,
		"secrets", c.SecretsSocket, "status_port", c.StatusPort, "grpc_bootstrap", s.GRPCBootstrap)
	h.listening()
	if err := group.Run(ctx); !errors.Is(err, errEnvoyEnded) {
		return err
	}
	return nil
}

// absent is the status.Envoy of an agent without Envoy: it is always ready, and has no metrics.
type absent struct{}

// Ready implements status.Envoy.
func (absent) Ready(context.Context) error { return nil }

// Do implements status.Envoy.
func (absent) Do(_ context.Context, method, path string) (*http.Response, error) {
	if !strings.HasPrefix(path, "/stats") {
		return nil, fmt.Errorf("%s %s: the agent runs without Envoy (DISABLE_ENVOY)", method, path)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: http.NoBody}, nil
}

// ending is the status.Life of an agent without Envoy: it serves until it is asked to end.
type ending struct {
	leaving atomic.Bool
	once    sync.Once
	ended   chan struct{}
}

// Leaving implements status.Life.
func (e *ending) Leaving() bool { return e.leaving.Load() }

// Serving implements status.Life.
func (e *ending) Serving() bool { return !e.Leaving() }

// Replacing implements status.Life.
func (*ending) Replacing() bool { return false }

// Refused implements status.Life.
func (*ending) Refused() (string, bool) { return "", false }

// Leave implements status.Life.
func (e *ending) Leave() { e.leaving.Store(true) }

// End implements status.Life.
func (e *ending) End() {
	e.Leave()
	e.once.Do(func() { close(e.ended) })
}
