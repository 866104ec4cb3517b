package service

import (
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// Footprint is the footprint of a view's host without regard to Sidecar listeners. ok is false if the view has neither a
// service nor routes for the host.
func (q *Queries) Footprint(r *query.Reader, v HostView) (exposure.Footprint, bool) {
	return q.FootprintAt(r, v, exposure.DefaultPlace)
}

// FootprintAt is the footprint of a view's host. places returns where each of its ports can be reached; its argument
// namespace is the namespace that declares the host.
func (q *Queries) FootprintAt(r *query.Reader, v HostView, places func(namespace string, port uint32) []exposure.Place) (exposure.Footprint, bool) {
	if s, ok := q.Service.Get(r, v); ok {
		return q.footprint(r, s, places), true
	}
	if namespace, ok := q.routesOnly(r, v); ok {
		return q.routesFootprint(r, v, func(_ string, port uint32) []exposure.Place { return places(namespace, port) }), true
	}
	return exposure.Footprint{}, false
}

// headless reports whether clients reach a service at the addresses of its endpoints: it has no address of its own, and
// connections go to their original destination.
func (q *Queries) headless(r *query.Reader, s *Service) bool {
	if s.Headless {
		return true
	}
	if s.Resolution != mesh.Passthrough || len(s.Addresses) > 0 || exposure.IsAddress(s.Host) {
		return false
	}
	for _, p := range s.Declarations {
		if e, ok := q.tables.Endpoints.Get(r, p.Object); ok && (len(e.Selector) > 0 || len(e.Inline) > 0) {
			return true
		}
	}
	return false
}

// endpointAddresses are the IP addresses of a service's endpoints, sorted, each once. Pods of a headless Service that end are among them, because
// clients keep their connections to a pod until it is gone, and call a pod by its address.
func (q *Queries) endpointAddresses(r *query.Reader, s *Service, port uint32) []string {
	var out []string
	for _, e := range q.allEndpoints(r, s, port) {
		if e.Port == 0 || e.Health >= mesh.Draining && !s.Headless {
			continue
		}
		for _, text := range []string{e.Address, e.Second} {
			if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Unmap().IsUnspecified() {
				out = append(out, a.Unmap().String())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// allAddresses are the addresses of a service for the clients of all clusters.
func (s *Service) allAddresses() []string {
	all := s.Addresses
	for _, p := range s.Declarations {
		if p.Member && p.Spec.Headless == s.Headless {
			all = union(slices.Clip(all), p.Spec.Addresses)
		}
	}
	return all
}

// Blocks are the address blocks (CIDR) of a service in canonical form, each once.
func (s *Service) Blocks() []string { return exposure.BlocksOf(s.Addresses) }
