package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/platform"
)

// Machine is what the agent runs on.
type Machine struct {
	// Memory is the limit of memory of the agent and Envoy together, in bytes; math.MaxUint64 for none.
	Memory uint64
	// Place is where the machine is, as far as a cloud tells; zero otherwise.
	Place platform.Place
}

// asking is how long the cloud may take to tell where the machine is. Its service is on the same host, or next to it.
const asking = 500 * time.Millisecond

// locate asks the cloud where this machine is. It is not worth more than the start of the proxy.
func locate(ctx context.Context, s *config.Settings, address string, log *slog.Logger) platform.Place {
	cloud := s.Cloud
	if cloud == "" {
		cloud = platform.Detect("/")
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	place, err := platform.Ask(ctx, cloud, address)
	if err != nil {
		log.Warn("the cloud does not tell where this machine is; set CLOUD_PLATFORM=none if it never does, and the label topology.istio.io/locality to say it", "cloud", string(cloud), "error", err)
	}
	return place
}
