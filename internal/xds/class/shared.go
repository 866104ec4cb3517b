package class

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
)

// defineShared defines the problems about node ids that several connected proxies have, one cell per id.
func (q *Queries) defineShared(g *query.Graph) query.Collection[All, api.Problem] {
	return query.Each(g, "sharedIDs",
		func(r *query.Reader, _ All) omap.Map[omap.Name, omap.Unit] {
			return q.tables.SharedIDs.Group(r, struct{}{})
		},
		query.Define(g, "sharedID", slices.Equal[[]api.Problem], func(r *query.Reader, id omap.Name) ([]api.Problem, bool) {
			n, ok := q.tables.Shared.Get(r, string(id))
			return []api.Problem{{
				Severity: api.Warning, Code: "proxy-id-shared", Field: string(id),
				Reason: fmt.Sprintf("%d proxies have this node id: pages and policies cannot distinguish them, and traffic for one may be "+
					"configured for the other; give each workload a name and an address of its own", n),
			}}, ok
		}),
		func(_ All, id omap.Name) omap.Name { return id })
}
