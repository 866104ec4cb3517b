// Package endpoint translates the endpoints of services into assignments.
//
// It owns which assignments exist: one for every cluster that fetches its endpoints, also if there are none, so that
// nobody waits for it. The package starts no goroutines; it must not import other translators, the store or sources.
package endpoint

import (
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Queries are the assignments.
type Queries struct {
	services *service.Queries
	traffic  *traffic.Queries
	at       *query.Query[service.View, []*resource.Resource]
	// Base are the assignments of what all see; Scoped those of a set.
	Base   *query.Collection[service.All, *resource.Resource]
	Scoped *query.Collection[scope.Set, *resource.Resource]
}

// Define adds the queries.
func Define(g *query.Graph, s *service.Queries, tr *traffic.Queries, sc *scope.Queries) *Queries {
	q := &Queries{services: s, traffic: tr}
	q.at = query.Define(g, "assignments", layer.Equal, q.assignments)
	q.Base = query.Each(g, "assignments.all",
		func(r *query.Reader, _ service.All) scope.Hosts { return s.PublicHosts(r) },
		q.at, func(_ service.All, host omap.Name) service.View { return service.View{Host: string(host)} })
	scoped := query.Define(g, "scopedAssignments", layer.Equal, func(r *query.Reader, h scope.HostIn) ([]*resource.Resource, bool) {
		return layer.Forward(h.Set.Overlay(), sc.View(r, h).Layer, func(view string) []*resource.Resource {
			list, _ := q.at.Get(r, service.View{Host: h.Host, Layer: view})
			return list
		}, resource.Hide)
	})
	q.Scoped = query.Each(g, "scopedAssignments.all",
		func(r *query.Reader, s scope.Set) scope.Hosts { return sc.Hosts(r, s) },
		scoped, func(s scope.Set, host omap.Name) scope.HostIn { return scope.HostIn{Host: string(host), Set: s} })
	return q
}

func (q *Queries) assignments(r *query.Reader, v service.View) ([]*resource.Resource, bool) {
	s, ok := q.services.Service.Get(r, v)
	if !ok || s.Resolution != mesh.Static {
		return nil, false
	}
	policy, _ := q.traffic.Policy.Get(r, v)
	var out []*resource.Resource
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		list := q.services.Endpoints(r, s, p.Number)
		service.ByLocality(list)
		out = append(out, assignment(envoy.OutboundCluster(p.Number, "", s.Host), list, nil))
		if policy == nil {
			continue
		}
		for _, subset := range policy.Subsets {
			out = append(out, assignment(envoy.OutboundCluster(p.Number, subset.Name, s.Host), list, subset.Labels))
		}
	}
	return out, true
}

func assignment(name string, list []service.PortEndpoint, labels map[string]string) *resource.Resource {
	endpoints := make([]envoy.Endpoint, 0, len(list))
	for _, e := range list {
		if e.Dialable() && mesh.Selects(labels, e.Labels) {
			endpoints = append(endpoints, envoy.Endpoint{Endpoint: e.Endpoint, Port: e.Port})
		}
	}
	return resource.New(resource.Endpoint, name, envoy.Assignment(name, endpoints))
}
