package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/platform"
)

// Machine describes the machine or container of the agent.
type Machine struct {
	// Memory is the limit of memory of the agent and Envoy together, in bytes; math.MaxUint64 for none.
	Memory uint64
	// Place is where the machine is, as far as its cloud reports that; zero otherwise.
	Place platform.Place
}

// asking is how long the metadata service of the cloud may take to answer. The service is on the same host, or next to it.
const asking = 500 * time.Millisecond

// locate asks the cloud where this machine is. A failure does not keep the proxy from starting.
func locate(ctx context.Context, s *config.Settings, address string, log *slog.Logger) platform.Place {
	cloud := s.Cloud
	if cloud == "" {
		cloud = platform.Detect("/")
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	place, err := platform.Ask(ctx, cloud, address)
	if err != nil {
		log.Warn("the cloud does not report where this machine is; set CLOUD_PLATFORM=none if it never does, and the label topology.istio.io/locality to say it", "cloud", string(cloud), "error", err)
	}
	return place
}
