package push

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Withhold implements server.Attachment: the objects that unacknowledged resources are made of get a Problem until they are
// acknowledged.
func (c *Connection) Withhold(now []protocol.Withheld) {
	l, conn, rows := c.loop, c.conn, 1
	for _, w := range now {
		rows += rejectionRows * len(w.Names) // what it is made of costs as much to look up
	}
	report := &job{report: true, rows: rows, write: func(tx *store.Txn) {
		if conn.gone || conn.class == nil {
			return
		}
		before := conn.withheld
		conn.withheld = map[state.WithheldKey]struct{}{}
		for _, w := range now {
			for _, name := range w.Names {
				k := state.WithheldKey{Connection: conn.id, Sent: state.Sent{Type: uint8(w.Type), Name: name}}
				l.tables.Withheld.Set(tx, k, state.Withheld{
					Proxy: conn.node, Since: w.Since, Objects: l.objectsOf(conn, k.Sent),
				})
				conn.withheld[k] = struct{}{}
				delete(before, k)
			}
			l.settings.Log.Warn("a proxy has not acknowledged resources for long; everything else goes on",
				"connection", conn.id, "type", w.Type.String(), "resources", w.Names, "since", w.Since)
		}
		for k := range before {
			l.tables.Withheld.Delete(tx, k)
		}
	}}
	l.queue.edit(func() {
		l.queue.remove(conn.telling) // what it says is out of date
		conn.telling = report
		l.queue.push(report)
	})
}

// objectsOf are the objects that an unacknowledged resource is made of. Many proxies withhold the same one at a time, and one
// problem tells of all of them: what another proxy's row says is not looked up again.
func (l *Loop) objectsOf(conn *connection, what state.Sent) []api.Key {
	for other := range l.tables.WithheldBy.Peek(what).All() {
		row, _ := l.tables.Withheld.Peek(state.WithheldKey{Connection: string(other), Sent: what})
		return row.Objects
	}
	return l.queries.Origin(l.graph, conn.class.key, resource.Type(what.Type), what.Name, "")
}
