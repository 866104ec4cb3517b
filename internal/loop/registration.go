package loop

import (
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/registration"
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

// Registered has a token after the registrations that Inspect shows have changed. It is for one reader.
func (l *Loop) Registered() <-chan struct{} { return l.registered }

func (l *Loop) setRegistrations(all registration.Map) {
	l.registrations = all
	select {
	case l.registered <- struct{}{}:
	default: // the reader has not looked at an earlier change yet
	}
}
