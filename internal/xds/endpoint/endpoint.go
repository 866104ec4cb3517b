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
		layer.Translator[assignment, *resource.Resource]{Translate: q.assignments, Encode: assignment.encode, Hide: resource.Hide})
	return q
}

// assignment is what is told of the endpoints of one cluster.
type assignment struct {
	name     string
	groups   []mesh.Group
	external bool
}

// encode does without a message: there may be very many endpoints.
func (a assignment) encode() *resource.Resource {
	return resource.Encoded(resource.Endpoint, a.name, envoy.EncodeAssignment(a.name, a.groups, a.external))
}

func (q *Queries) assignments(r *query.Reader, at layer.Seen) []assignment {
	s, ok := q.services.Service.Get(r, at.View)
	if !ok || s.Resolution != mesh.Static {
		return nil
	}
	policy := q.traffic.PolicyFor(r, at.View, at.Rules)
	preferring := q.traffic.Preferring(r, s.Near, policy)
	var out []assignment
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
			groups := preference.Arrange(chosen(list, subset.GetLabels()), at.Site)
			name := envoy.OutboundCluster(p.Number, subset.GetName(), s.Host)
			out = append(out, assignment{name, groups, s.External})
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
