// Package endpoint translates the endpoints of services into assignments.
//
// It owns which assignments exist: one for every cluster that fetches its endpoints, also if there are none, so that
// nobody waits for it. The package starts no goroutines; it must not import other translators, the store or sources.
package endpoint

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
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
	*layer.Hosts[*resource.Resource]
}

// Define adds the queries.
func Define(g *query.Graph, s *service.Queries, tr *traffic.Queries, sc *scope.Queries) *Queries {
	q := &Queries{services: s, traffic: tr}
	q.Hosts = layer.DefineHosts(g, layer.Names{Base: "assignments", Scoped: "scopedAssignments", Own: "ownAssignments"}, s, tr, sc,
		layer.Differs[*resource.Resource]{At: q.assignments, Hide: resource.Hide})
	return q
}

func (q *Queries) assignments(r *query.Reader, v service.View, k traffic.Client) []*resource.Resource {
	s, ok := q.services.Service.Get(r, v)
	if !ok || s.Resolution != mesh.Static {
		return nil
	}
	policy := q.traffic.PolicyFor(r, v, k.Rules)
	preferring := q.traffic.Preferring(r, s.Near, policy)
	var out []*resource.Resource
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		list := dialable(q.services.Endpoints(r, s, p.Number))
		one := func(subset *networking.Subset) {
			var preference *traffic.Preference
			if preferring {
				preference = q.traffic.Preference(r, s.Near, q.traffic.Settings(r, policy, subset, p.Number))
			}
			groups := preference.Arrange(chosen(list, subset.GetLabels()), k.Site)
			name := envoy.OutboundCluster(p.Number, subset.GetName(), s.Host)
			out = append(out, resource.Encoded(resource.Endpoint, name, envoy.EncodeAssignment(name, groups, s.External)))
		}
		one(nil)
		if policy == nil {
			continue
		}
		for _, subset := range policy.Subsets {
			one(subset)
		}
	}
	return out
}

// dialable are the endpoints that can be connected to. The list is the caller's.
func dialable(list []mesh.PortEndpoint) []mesh.PortEndpoint {
	return slices.DeleteFunc(list, func(e mesh.PortEndpoint) bool { return !e.Dialable() })
}

// chosen are the endpoints of a subset.
func chosen(list []mesh.PortEndpoint, labels map[string]string) []mesh.PortEndpoint {
	if len(labels) == 0 {
		return list
	}
	out := make([]mesh.PortEndpoint, 0, len(list))
	for _, e := range list {
		if e.Has(labels) {
			out = append(out, e)
		}
	}
	return out
}
