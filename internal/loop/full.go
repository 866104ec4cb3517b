package loop

import (
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/connected"
)

// NoteFull implements server.Attachment. The proxy gets a Problem until it leaves, because an Envoy never forgets a host that it has asked for.
func (c *Connection) NoteFull(reason string) {
	l, conn := c.loop, c.conn
	l.queue.add(&job{rows: 1, report: true, write: func(tx *store.Txn) {
		if !conn.left {
			l.tables.Full.Set(tx, conn.id, connected.Full{Proxy: conn.node, Reason: reason})
		}
	}})
}
