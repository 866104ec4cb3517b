package loop

import (
	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/connected"
)

// Applied implements server.Attachment. The report becomes a row. A later report replaces one that still waits.
func (c *Connection) Applied(warming []protocol.Warming, draining protocol.Draining) {
	l, conn := c.loop, c.conn
	now := connected.Warming{DrainingChains: draining.FilterChains, DrainingConnections: draining.Connections}
	for _, w := range warming {
		for _, name := range w.Names {
			now.Resources = append(now.Resources, connected.ResourceKey{Type: uint8(w.Type), Name: name})
		}
		if w.More {
			now.More = append(now.More, uint8(w.Type))
		}
	}
	conn.warming.add(l.queue, func(work *connected.Warming) *job {
		return &job{report: true, write: func(tx *store.Txn) {
			switch {
			case conn.left:
			case len(work.Resources)+len(work.More) == 0 && work.DrainingChains == 0:
				l.tables.Warming.Delete(tx, conn.id)
			default:
				l.tables.Warming.Set(tx, conn.id, *work)
			}
		}}
	}, func(work *connected.Warming) (rows int) {
		*work = now
		return 1
	})
}
