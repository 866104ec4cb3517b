package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/health"
	"github.com/pilotmesh/pilot/internal/agent/relay"
	"github.com/pilotmesh/pilot/internal/agent/status"
	"github.com/pilotmesh/pilot/internal/run"
)

// checkHealth adds the check of the workload's health to the group, if the settings have a readiness probe. The check reports its result
// through the relay.
func checkHealth(group *run.Group, s *config.Settings, envoy status.Envoy, life status.Life, r *relay.Relay, log *slog.Logger) {
	if !s.Application.Readiness.Set() {
		return
	}
	checker := health.New(health.Options{
		Probe: s.Application.Readiness, Log: log,
		Envoy: func(ctx context.Context) error { return serves(ctx, envoy, life) },
		Report: func(err error) {
			if err != nil {
				r.Report(relay.Health{Reason: err.Error()})
				return
			}
			r.Report(relay.Health{Healthy: true})
		},
	})
	group.Add(run.Actor{Name: "health of the workload", Run: checker.Run})
}

// serves returns nil if Envoy accepts requests of clients.
func serves(ctx context.Context, envoy status.Envoy, life status.Life) error {
	switch {
	case life.Leaving():
		return errors.New("it is draining")
	case life.Replacing():
		return nil // the present Envoy serves, and cannot be asked
	}
	return envoy.Ready(ctx)
}
