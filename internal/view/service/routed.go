package service

import (
	"math"
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// routesOnlyPort is where the routes of a host apply whatever services there are.
const routesOnlyPort = 80

// routesOnly reports whether a host has routes and no service: then the routes are all there is to it. A pattern that
// covers services has given them its routes already.
func (q *Queries) routesOnly(r *query.Reader, v View) bool {
	routes := false
	for c := range q.tables.ByHost.Group(r, v.Host).All() {
		routes = routes || c.Kind == state.RouteClaim && c.VisibleTo(v.Layer)
	}
	if !routes || !mesh.IsWildcard(v.Host) {
		return routes
	}
	return q.tables.Hosts.Group(r, state.HostGroup{By: state.ServiceUnder, Of: v.Host}).Len() == 0
}

// Covering is the service whose pattern covers a view's host, the narrowest.
func (q *Queries) Covering(r *query.Reader, v View) (*Service, bool) {
	for pattern := range mesh.Patterns(v.Host) {
		if Home(q.tables.ByHost.Group(r, pattern), v.Layer) == "" {
			continue
		}
		if s, ok := q.Service.Get(r, View{pattern, v.Layer}); ok {
			return s, true
		}
	}
	return nil, false
}

// routed is what a host takes up that has routes and no service of its own: port 80, and what the service takes up by name
// whose pattern covers it.
func (q *Queries) routed(r *query.Reader, v View) Footprint {
	f := Footprint{Host: v.Host, HTTP: []uint32{routesOnlyPort}}
	if a, err := netip.ParseAddr(v.Host); err == nil && a.Zone() == "" {
		// Rules for it by name go before a service that has it for an address.
		f.VIPs, f.Created = []string{a.Unmap().String()}, math.MinInt64
	}
	if s, ok := q.Covering(r, v); ok {
		whole := q.footprint(r, s)
		f.Created = s.Created - 1 // the narrower name goes first
		for _, port := range whole.Shared {
			if !slices.Contains(f.HTTP, port) {
				f.HTTP = append(f.HTTP, port)
			}
		}
		for _, at := range whole.TCP {
			if p, _ := s.Port(at.Port); p.Protocol.IsTLS() {
				f.TCP = append(f.TCP, at)
			}
		}
	}
	f.Shared = f.HTTP
	return f
}
