package connected

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Full records that a sidecar with hosts on demand is refused further hosts.
type Full struct {
	Proxy  string // the node id
	Reason string // which bound it has reached, as one line of text
}

func (t *Rows) defineFull(db *store.DB) {
	t.Full = store.NewTable[string](db, "full", func(a, b Full) bool { return a == b })
	t.FullConnections = store.NewIndex(t.Full, "fullConnections", func(connection string, _ Full, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(connection))
	})
}
