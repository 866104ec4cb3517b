package loop

import (
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/state"
)

// noteAccounts makes the accounts of the endpoints of Services rows of the next commit. The clusters of a Service keep them when its last endpoint
// goes, so that proxies need no other cluster when a workload is scaled to nothing and back.
func (l *Loop) noteAccounts(now omap.Map[omap.Name, state.Accounts]) {
	old := l.accounts
	l.accounts = now
	if write := l.tables.RememberAccounts(old, now); write != nil {
		l.writes = append(l.writes, write)
	}
}
