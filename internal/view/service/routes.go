package service

import (
	"net/netip"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// RoutesOnlyPort is the port where a host has a virtual host if routes exist for it but no service.
const RoutesOnlyPort = 80

// routesOnly reports whether a view's host has visible routes and no service, and the namespace of the first such object.
// A pattern that covers services does not count, because those services have the routes already.
func (q *Queries) routesOnly(r *query.Reader, v HostView) (namespace string, ok bool) {
	for c := range q.tables.ByHost.Group(r, v.Host).All() {
		if c.Kind == claim.Route && c.VisibleTo(v.Viewer) && !v.ExcludedRoutes.Has(c.Object()) {
			namespace, ok = c.Namespace, true
			break
		}
	}
	if !ok || !mesh.IsWildcard(v.Host) {
		return namespace, ok
	}
	return namespace, q.tables.Hosts.ServiceUnder.Group(r, v.Host).Len() == 0
}

// CoveringService is the service with the narrowest wildcard host that covers the view's host.
func (q *Queries) CoveringService(r *query.Reader, v HostView) (*Service, bool) {
	for pattern := range mesh.Patterns(v.Host) {
		if DeclaringNamespace(q.tables.ByHost.Group(r, pattern), v.Viewer) == "" {
			continue
		}
		if s, ok := q.Service.Get(r, HostView{Host: pattern, Viewer: v.Viewer}); ok {
			return s, true
		}
	}
	return nil, false
}

// routesFootprint is the footprint of a host that has routes and no service: port 80, and whatever the service that
// covers it takes up by name. Exposures are asked without a namespace, because no object declares the host.
func (q *Queries) routesFootprint(r *query.Reader, v HostView, places func(namespace string, port uint32) []exposure.Place) exposure.Footprint {
	f, port := exposure.Footprint{Host: v.Host}, mesh.Port{Number: RoutesOnlyPort, Protocol: mesh.HTTP}
	for _, at := range places("", port.Number) {
		switch {
		case !at.ProtocolOf(port).IsHTTP():
		case at.IP != "":
			f.AddExposedAddress(port, at, false)
		default:
			f.AddHTTP(port, at, false)
		}
	}
	// Routes for an address as a host come before a service that has this address.
	if a, err := netip.ParseAddr(v.Host); err == nil && a.Zone() == "" && len(f.HTTPPorts) > 0 {
		f.VIPs, f.Created = []string{a.Unmap().String()}, exposure.FirstRoutes
	}
	if s, ok := q.CoveringService(r, v); ok {
		f.Created = s.Created - 1 // the narrower name comes first
		f.AddHTTPOf(s.Port, q.footprint(r, s, places))
	}
	return f
}
