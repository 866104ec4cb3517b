package problem

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// checkRegistered finds the problems of a service of a registry whose host something else defines: what of it is not used.
func (q *Queries) checkRegistered(r *query.Reader, k api.Key) ([]api.Problem, bool) {
	f := &findings{q: q, r: r, key: k}
	s, ok := q.scope.DestinationService(r, k.Name, k.Namespace)
	if !ok {
		return nil, false
	}
	at := slices.IndexFunc(s.Declarations, func(d service.Declaration) bool { return d.Object == k && d.Joined })
	if at < 0 {
		return nil, false
	}
	by := s.Declarations[0]
	if !s.Joinable() {
		f.conflict("registry-attach", "", "its endpoints are left out: %v defines %s with resolution %s, which takes no endpoints of registries", by.Object, k.Name, s.Resolution)
		return f.list, true
	}
	own := s.Declarations[at].Spec
	if own.Resolution != mesh.Static {
		f.conflict("registry-attach", "", "endpoints whose address is a name are left out: %v defines %s with resolution %s", by.Object, k.Name, s.Resolution)
	}
	for _, p := range own.Ports {
		if _, ok := s.PortFor(p); !ok {
			f.conflict("registry-attach", "", "endpoints of port %d (%s) are left out: %v defines %s with the ports %s, and none of them has this number, or alone this protocol",
				p.Number, p.Protocol, by.Object, k.Name, service.ListPorts(s.Ports))
		}
	}
	return f.list, len(f.list) > 0
}
