package class

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
)

// defineFull defines the problems about sidecars that are refused further hosts on demand, one cell per connection.
func (q *Queries) defineFull(g *query.Graph) query.Collection[All, api.Problem] {
	return query.Each(g, "fullAll",
		func(r *query.Reader, _ All) omap.Map[omap.Name, omap.Unit] {
			return q.tables.FullConnections.Group(r, struct{}{})
		},
		query.Define(g, "full", slices.Equal[[]api.Problem], func(r *query.Reader, connection omap.Name) ([]api.Problem, bool) {
			row, ok := q.tables.Full.Get(r, string(connection))
			return []api.Problem{{
				Severity: api.Warning, Code: "hosts-on-demand-full", Field: row.Proxy,
				Reason: row.Reason + "; the hosts that it has are still updated. Find out why the workload uses so many names, then start it again, or switch hosts on demand off for it",
			}}, ok
		}),
		func(_ All, connection omap.Name) omap.Name { return connection })
}
