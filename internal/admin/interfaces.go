package admin

import (
	"context"

	"github.com/pilotmesh/pilot/internal/xds/push"
	"github.com/pilotmesh/pilot/internal/xds/server"
)

// Mesh is the control plane's state. Inspect runs fn between two commits, on the goroutine that owns the state; fn is
// quick and keeps only what is immutable. *push.Loop implements it.
type Mesh interface {
	Inspect(ctx context.Context, fn func(*push.View)) error
}

// Streams lists who is connected. It may be called from any goroutine. *server.Server implements it.
type Streams interface {
	Streams() []server.Status
}
