package service

import (
	"math"
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// RoutesOnlyPort is where the routes of a host apply whatever services there are.
const RoutesOnlyPort = 80

// routesOnly reports whether a host has routes and no service, and the namespace they are from: then the routes are all
// there is to it. A pattern that covers services has given them its routes already.
func (q *Queries) routesOnly(r *query.Reader, v View) (namespace string, ok bool) {
	for c := range q.tables.ByHost.Group(r, v.Host).All() {
		if c.Kind == state.RouteClaim && c.VisibleTo(v.Layer) && !v.Barred.Has(c.Object()) {
			namespace, ok = c.Namespace, true
			break
		}
	}
	if !ok || !mesh.IsWildcard(v.Host) {
		return namespace, ok
	}
	return namespace, q.tables.Hosts.ServiceUnder.Group(r, v.Host).Len() == 0
}

// Covering is the service whose pattern covers a view's host, the narrowest.
func (q *Queries) Covering(r *query.Reader, v View) (*Service, bool) {
	for pattern := range mesh.Patterns(v.Host) {
		if Home(q.tables.ByHost.Group(r, pattern), v.Layer) == "" {
			continue
		}
		if s, ok := q.Service.Get(r, View{Host: pattern, Layer: v.Layer}); ok {
			return s, true
		}
	}
	return nil, false
}

// routed is what a host takes up that has routes and no service of its own: port 80, and what the service takes up by name
// whose pattern covers it; both where the routes may apply, so places are not asked for a namespace.
func (q *Queries) routed(r *query.Reader, v View, places func(namespace string, port uint32) []Place) Footprint {
	f, port := Footprint{Host: v.Host}, mesh.Port{Number: RoutesOnlyPort, Protocol: mesh.HTTP}
	for _, at := range places("", port.Number) {
		switch {
		case !at.speaks(port).IsHTTP():
		case at.IP != "":
			f.takeAt(port, at, false)
		default:
			f.takeHTTP(port, at, false)
		}
	}
	if a, err := netip.ParseAddr(v.Host); err == nil && a.Zone() == "" && len(f.HTTP) > 0 {
		// Rules for it by name go before a service that has it for an address.
		f.VIPs, f.Created = []string{a.Unmap().String()}, math.MinInt64
	}
	if s, ok := q.Covering(r, v); ok {
		f.Created = s.Created - 1 // the narrower name goes first
		f.takeNames(s, q.footprint(r, s, places))
	}
	return f
}

// takeNames takes what a service takes up where hosts are told by name.
func (f *Footprint) takeNames(s *Service, whole Footprint) {
	f.Shared = union(f.Shared, whole.Shared)
	f.Unnamed = union(f.Unnamed, whole.Unnamed)
	for _, port := range whole.HTTP {
		if slices.Contains(whole.Shared, port) {
			f.HTTP = union(f.HTTP, []uint32{port})
		}
	}
	for _, c := range whole.Requests {
		f.HTTP = union(f.HTTP, []uint32{c.Port})
		f.Requests = union(f.Requests, []Requests{c})
	}
	for _, c := range whole.TCP {
		p, _ := s.Port(c.Port)
		if c.As != mesh.Auto {
			p.Protocol = c.As
		}
		if p.Protocol.IsTLS() {
			f.TCP = append(f.TCP, c)
		}
	}
}
