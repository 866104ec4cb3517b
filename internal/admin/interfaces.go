package admin

import (
	"context"

	"github.com/pilotmesh/pilot/internal/xds/push"
	"github.com/pilotmesh/pilot/internal/xds/server"
)

// Mesh is the state of the control plane. Inspect runs fn between two commits, on the goroutine that owns the state. fn must
// return quickly, and must keep only immutable values. *push.Loop implements Mesh.
type Mesh interface {
	Inspect(ctx context.Context, fn func(*push.View)) error
}

// Streams lists the connected streams. It may be called on any goroutine. *server.Server implements it.
type Streams interface {
	Streams() []server.Status
}
