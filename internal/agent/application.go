package agent

import (
	"log/slog"
	"net/http"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/probe"
)

// probes returns the handler of the application's probes.
func probes(s *config.Settings, c boot.Config, log *slog.Logger) http.Handler {
	return probe.Handler(probe.Options{
		Probes: s.Application.Probes, Address: s.Application.Address, Own: s.Addresses, StatusPort: c.StatusPort, Log: log,
	})
}
