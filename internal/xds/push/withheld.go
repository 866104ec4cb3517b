package push

import (
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/server"
)

// Withhold implements server.Attachment: the objects that unacknowledged resources are made of get a Problem until they are
// acknowledged.
func (c *Connection) Withhold(now []server.Withheld) {
	l, conn := c.loop, c.conn
	l.queue.add(&job{rows: 1, write: func(tx *store.Txn) {
		if conn.gone || conn.class == nil {
			return
		}
		before := conn.withheld
		conn.withheld = map[state.WithheldKey]struct{}{}
		for _, w := range now {
			for _, name := range w.Names {
				k := state.WithheldKey{Connection: conn.id, Sent: state.Sent{Type: uint8(w.Type), Name: name}}
				l.tables.Withheld.Set(tx, k, state.Withheld{
					Proxy: conn.node, Since: w.Since, Objects: l.queries.Origin(l.graph, conn.class.key, w.Type, name, ""),
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
	}})
}
