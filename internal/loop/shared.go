package loop

import (
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// shared counts the connections of each node id by the place of the proxy. It belongs to the goroutine of the loop. The
// agent of a proxy does not count, and neither do several connections from one place: during a hot restart a proxy has two, and an old
// connection may last until the server notices that it is broken.
type shared map[string]map[proxy.Origin]int

// noteShared adds n to the connections of a proxy's node id, and makes an id that is used in several places a row.
func (l *Loop) noteShared(tx *store.Txn, p *proxy.Proxy, n int) {
	if p.Role == proxy.Agent {
		return
	}
	places := l.shared[p.ID]
	if places == nil {
		places = map[proxy.Origin]int{}
		l.shared[p.ID] = places
	}
	at := p.Origin()
	if places[at] += n; places[at] == 0 {
		delete(places, at)
	}
	switch len(places) {
	case 0:
		delete(l.shared, p.ID)
	case 1:
		l.tables.Shared.Delete(tx, p.ID)
	default:
		l.tables.Shared.Set(tx, p.ID, len(places))
	}
}
