package service

import (
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

func (q *Queries) footprint(r *query.Reader, s *Service, places func(namespace string, port uint32) []exposure.Place) exposure.Footprint {
	f := exposure.Footprint{
		Host: s.Host, Created: s.Created, OverruledNamespaces: s.OverruledNamespaces, ForGateways: s.DiffersForGateways(), ForVersions: s.ResolvesNames(),
	}
	own := exposure.Addresses{Headless: q.headless(r, s), Cluster: s.Headless}
	own.Singles, own.Blocks = exposure.SplitAddresses(s.Host, s.allAddresses())
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		if own.Headless {
			own.Endpoints = q.endpointAddresses(r, s, p.Number)
		}
		for _, at := range places(s.Namespace, p.Number) {
			switch {
			case at.IP != "":
				f.AddExposedAddress(p, at, s.Resolution == mesh.DynamicDNS)
			case at.ProtocolOf(p).IsHTTP():
				f.AddHTTP(p, at, s.Resolution == mesh.DynamicDNS)
			default:
				f.AddConnections(p, at, own)
			}
		}
	}
	if len(f.HTTPPorts) > 0 {
		f.VIPs = own.Singles
	}
	return f
}
