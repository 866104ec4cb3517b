package push

import (
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/store"
)

// shared counts the connections of each node id. It belongs to the goroutine of the loop. An agent that has a stream beside its proxy does
// not count.
type shared map[string]int

// noteShared adds n to the connections of a proxy's node id, and makes an id of several connections a row.
func (l *Loop) noteShared(tx *store.Txn, p *proxy.Proxy, n int) {
	if p.Role == proxy.Agent {
		return
	}
	l.shared[p.ID] += n
	switch count := l.shared[p.ID]; {
	case count > 1:
		l.tables.Shared.Set(tx, p.ID, count)
	case count == 1:
		l.tables.Shared.Delete(tx, p.ID)
	default:
		delete(l.shared, p.ID)
	}
}
