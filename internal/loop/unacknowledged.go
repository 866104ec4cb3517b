package loop

import (
	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// NoteUnacknowledged implements server.Attachment. The objects from which the unacknowledged resources were made get a Problem until the
// proxy acknowledges them. A later report replaces one that still waits.
func (c *Connection) NoteUnacknowledged(now []protocol.Unacknowledged) {
	l, conn := c.loop, c.conn
	conn.unacknowledgedJob.add(l.queue, func(work *[]protocol.Unacknowledged) *job {
		return &job{report: true, write: func(tx *store.Txn) { l.writeUnacknowledged(tx, conn, *work) }}
	}, func(work *[]protocol.Unacknowledged) (rows int) {
		*work, rows = now, 1
		for _, w := range now {
			rows += rejectionRows * len(w.Names) // The lookup of the objects costs as much as for a rejection.
		}
		return rows
	})
}

// writeUnacknowledged replaces the rows of a connection with its unacknowledged resources now.
func (l *Loop) writeUnacknowledged(tx *store.Txn, conn *connection, now []protocol.Unacknowledged) {
	if conn.left || conn.class == nil {
		return
	}
	before := conn.unacknowledged
	conn.unacknowledged = map[connected.UnacknowledgedKey]struct{}{}
	for _, w := range now {
		for _, name := range w.Names {
			k := connected.UnacknowledgedKey{Connection: conn.id, ResourceKey: connected.ResourceKey{Type: uint8(w.Type), Name: name}}
			l.tables.Unacknowledged.Set(tx, k, connected.Unacknowledged{
				Proxy: conn.node, Since: w.Since, Objects: l.objectsOf(conn, k.ResourceKey),
			})
			conn.unacknowledged[k] = struct{}{}
			delete(before, k)
		}
		l.settings.Log.Warn("proxy has not acknowledged resources for a long time; other resources are still updated",
			"connection", conn.id, "type", w.Type.String(), "resources", w.Names, "since", w.Since)
	}
	for k := range before {
		l.tables.Unacknowledged.Delete(tx, k)
	}
}

// objectsOf lists the objects from which an unacknowledged resource was made. Often many proxies withhold the acknowledgement of
// the same resource, so it takes the list from the row of another proxy if there is one.
func (l *Loop) objectsOf(conn *connection, what connected.ResourceKey) []api.Key {
	for other := range l.tables.UnacknowledgedBy.Peek(what).All() {
		row, _ := l.tables.Unacknowledged.Peek(connected.UnacknowledgedKey{Connection: string(other), ResourceKey: what})
		return row.Objects
	}
	return l.queries.Origin(l.graph, conn.class.key, resource.Type(what.Type), what.Name, "")
}
