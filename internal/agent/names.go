package agent

import (
	"context"
	"log/slog"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/dns"
	"github.com/pilotmesh/pilot/internal/agent/status"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/run"
)

// serveNames adds the DNS proxy to the group. It returns nil if the agent does not answer DNS queries.
func serveNames(ctx context.Context, group *run.Group, s *config.Settings, c boot.Config, dialer *upstream.Dialer, kept dns.Kept, log *slog.Logger) (status.Names, error) {
	if !s.DNS.Capture {
		return nil, nil
	}
	p, err := dns.Listen(ctx, dns.Options{
		Host: s.DNS.Host, Port: s.DNS.Port, Domain: s.Domain, ResolvConf: s.DNS.ResolvConf, Parallel: s.DNS.Parallel, Timeout: s.DNS.Timeout, Log: log,
	})
	if err != nil {
		return nil, err
	}
	group.Add(run.Actor{Name: "DNS proxy", Run: p.Run})
	group.Add(run.Actor{Name: "names of the mesh", Run: dns.NewSubscriber(p, calls(dialer), c.Node, kept, log).Run})
	return p, nil
}
