package scope

import (
	"iter"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// maxBarred bounds how many objects with rules for one host are looked at.
const maxBarred = 60

// rules yields the claims of VirtualServices on a host, and on the patterns that cover it, that a namespace sees.
func (q *Queries) rules(r *query.Reader, k hostFrom) iter.Seq[state.Claim] {
	return func(yield func(state.Claim) bool) {
		for host := range mesh.NarrowestFirst(k.host) {
			for c := range q.tables.ByHost.Group(r, host).All() {
				if c.Kind > state.RouteClaim {
					break // listed by kind
				}
				if c.Kind == state.RouteClaim && c.VisibleTo(k.namespace) && !yield(c) {
					return
				}
			}
		}
	}
}

// barredFrom are the VirtualServices for a host that the Sidecar of a set does not let in; see service.View. It lets one in
// whose namespace it names with a host that meets one of the object's, whichever of the two is the wider.
func (q *Queries) barredFrom(r *query.Reader, h HostIn) (intern.List[api.Key], bool) {
	row, ok := q.tables.Sidecars.Get(r, h.Set.Sidecar)
	if !ok {
		return intern.List[api.Key]{}, false
	}
	var barred []api.Key
	looked := 0
	for c := range q.rules(r, hostFrom{h.Host, h.Set.Namespace}) {
		if looked++; looked > maxBarred {
			break
		}
		claims, ok := q.tables.Claims.Get(r, c.Object())
		if ok && !slices.ContainsFunc(claims.Hosts, func(host string) bool { return row.Meets(c.Namespace, host, h.Set.Namespace) }) {
			barred = append(barred, c.Object())
		}
	}
	slices.SortFunc(barred, api.Key.Compare)
	return intern.Of(slices.Compact(barred)...), true
}
