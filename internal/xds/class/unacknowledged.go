package class

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// defineUnacknowledged defines the problems about acknowledgements that proxies withhold, one cell per resource.
func (q *Queries) defineUnacknowledged(g *query.Graph) query.Collection[All, api.Problem] {
	return query.Each(g, "unacknowledgedAll",
		func(r *query.Reader, _ All) omap.Map[connected.ResourceKey, omap.Unit] {
			return q.tables.UnacknowledgedNames.Group(r, struct{}{})
		},
		query.Define(g, "unacknowledged", slices.Equal[[]api.Problem], q.unacknowledged),
		func(_ All, k connected.ResourceKey) connected.ResourceKey { return k })
}

// unacknowledged returns the problems about one resource that proxies were sent and have not acknowledged for long.
func (q *Queries) unacknowledged(r *query.Reader, k connected.ResourceKey) ([]api.Problem, bool) {
	by := q.tables.UnacknowledgedBy.Group(r, k)
	var row connected.Unacknowledged
	for connection := range by.All() {
		row, _ = q.tables.Unacknowledged.Get(r, connected.UnacknowledgedKey{Connection: string(connection), ResourceKey: k})
		break
	}
	who := "proxy " + row.Proxy
	switch n := by.Len() - 1; {
	case n == 0:
	case n == 1:
		who += " and another one"
	case n > 1:
		who += fmt.Sprintf(" and %d others", n)
	default:
		return nil, false
	}
	what := fmt.Sprintf("%v %q", resource.Type(k.Type), k.Name)
	waits := "does not acknowledge it"
	if resource.Type(k.Type) == resource.Cluster {
		waits = "does not acknowledge it: this cluster, or one that was sent with it, does not warm. See whether its endpoints can be resolved " +
			"and its certificates fetched"
	}
	if len(row.Objects) == 0 {
		return []api.Problem{{Severity: api.Warning, Code: "proxy-unacknowledged", Field: what, Reason: fmt.Sprintf("%s was sent %s and %s", who, what, waits)}}, true
	}
	list := make([]api.Problem, 0, len(row.Objects))
	for _, o := range row.Objects {
		list = append(list, api.Problem{
			Object: o, Severity: api.Warning, Code: "proxy-unacknowledged", Field: what,
			Reason: fmt.Sprintf("%s was sent %s, which is made of this object, and %s", who, what, waits),
		})
	}
	return list, true
}
