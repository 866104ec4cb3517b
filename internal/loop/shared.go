package loop

import (
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// shared counts the connections of each node id by the host from which the proxy connected. It belongs to the goroutine of the loop. The
// agent of a proxy does not count, and neither do several connections from one host: during a hot restart a proxy has two, and an old
// connection may last until the server notices that it is broken.
type shared map[string]map[string]int

// noteShared adds n to the connections of a proxy's node id, and makes an id that is used from several hosts a row.
func (l *Loop) noteShared(tx *store.Txn, p *proxy.Proxy, n int) {
	if p.Role == proxy.Agent {
		return
	}
	hosts := l.shared[p.ID]
	if hosts == nil {
		hosts = map[string]int{}
		l.shared[p.ID] = hosts
	}
	if hosts[p.From] += n; hosts[p.From] == 0 {
		delete(hosts, p.From)
	}
	switch len(hosts) {
	case 0:
		delete(l.shared, p.ID)
	case 1:
		l.tables.Shared.Delete(tx, p.ID)
	default:
		l.tables.Shared.Set(tx, p.ID, len(hosts))
	}
}
