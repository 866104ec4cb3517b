package loop

import (
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/connected"
)

// Health implements server.Attachment. The health of the application becomes a row. A later report replaces one that still waits.
func (c *Connection) Health(healthy bool, message string) {
	l, conn := c.loop, c.conn
	now := connected.Health{State: connected.Healthy}
	if !healthy {
		now = connected.Health{State: connected.Unhealthy, Message: message}
	}
	conn.health.add(l.queue, func(work *connected.Health) *job {
		return &job{write: func(tx *store.Txn) {
			if !conn.left {
				l.tables.Health.Set(tx, conn.id, *work)
			}
		}}
	}, func(work *connected.Health) (rows int) {
		*work = now
		return 1
	})
}
