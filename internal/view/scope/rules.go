package scope

import (
	"iter"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
)

// maxRouteObjects bounds how many VirtualServices for one host are compared with a Sidecar.
const maxRouteObjects = 60

// visibleRoutes yields the claims of VirtualServices on a host, and on the patterns that cover it, that a namespace sees.
func (q *Queries) visibleRoutes(r *query.Reader, k hostFromNamespace) iter.Seq[claim.Claim] {
	return func(yield func(claim.Claim) bool) {
		for host := range mesh.NarrowestFirst(k.host) {
			for c := range q.tables.ByHost.Group(r, host).All() {
				if c.Kind > claim.Route {
					break // claims are sorted by kind
				}
				if c.Kind == claim.Route && c.VisibleTo(k.namespace) && !yield(c) {
					return
				}
			}
		}
	}
}

// routesExcludedBy are the VirtualServices for a host that the Sidecar of a set does not import; see service.HostView. A
// Sidecar imports one if an egress host has its namespace and overlaps with one of its hosts.
func (q *Queries) routesExcludedBy(r *query.Reader, h HostInSet) (intern.List[api.Key], bool) {
	row, ok := q.tables.Sidecars.Get(r, h.Set.Sidecar)
	if !ok {
		return intern.List[api.Key]{}, false
	}
	var excluded []api.Key
	read := 0
	for c := range q.visibleRoutes(r, hostFromNamespace{h.Host, h.Set.Namespace}) {
		if read++; read > maxRouteObjects {
			break
		}
		claims, ok := q.tables.Claims.Get(r, c.Object())
		if ok && !slices.ContainsFunc(claims.Hosts, func(host string) bool { return row.Meets(c.Namespace, host, h.Set.Namespace) }) {
			excluded = append(excluded, c.Object())
		}
	}
	slices.SortFunc(excluded, api.Key.Compare)
	return intern.Of(slices.Compact(excluded)...), true
}
