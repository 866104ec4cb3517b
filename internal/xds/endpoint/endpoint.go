// Package endpoint translates the endpoints of services into cluster load assignments.
//
// It owns which assignments exist: one for every cluster of type EDS, even if it has no endpoints, so that no cluster
// waits for its assignment. The package starts no goroutines.
package endpoint

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Queries are the layers of assignments.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	*layer.Hosts[*resource.Resource]
	// Passing are the assignments of the clusters through which gateways forward TLS of the mesh.
	Passing *layer.Hosts[*resource.Resource]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc}
	q.Hosts = layer.DefineHosts(g, layer.Names{Base: "assignments", Scoped: "scopedAssignments", Client: "ownAssignments"}, s, tr, sc,
		layer.Translator[assignment, *resource.Resource]{Translate: q.assignments, Encode: assignment.encode, DependsOnClient: q.dependsOnClient, Hide: resource.Hide})
	q.Passing = layer.DefineHosts(g, layer.Names{Base: "passingAssignments", Scoped: "scopedPassingAssignments", Client: "ownPassingAssignments"}, s, tr, sc,
		layer.Translator[assignment, *resource.Resource]{Translate: q.passing, Encode: assignment.encode, DependsOnClient: q.dependsOnClient, Hide: resource.Hide})
	return q
}

// assignment is the content of a ClusterLoadAssignment.
type assignment struct {
	name   string
	groups []mesh.Group
	// external endpoints never get the metadata for the mesh's TLS.
	external bool
	peers    envoy.Peers
}

// encode encodes the assignment without building a message, because there may be very many endpoints.
func (a assignment) encode() *resource.Resource {
	return resource.Encoded(resource.Endpoint, a.name, envoy.EncodeAssignment(a.name, a.groups, a.external, a.peers))
}

// assignments are the assignments of all ports and subsets of a host.
func (q *Queries) assignments(r *query.Reader, at layer.HostForClient) []assignment {
	s, ok := q.services.Service.Get(r, at.HostView)
	if !ok || s.Resolution != mesh.Static && !(s.Resolution == mesh.Passthrough && at.Gateway) {
		return nil
	}
	return q.assign(r, at, s, purpose{name: envoy.OutboundCluster})
}

// passing are the assignments of the clusters of a host through which gateways forward TLS of the mesh. They have only endpoints that
// accept it, and none if a rule says that clients do not use it.
func (q *Queries) passing(r *query.Reader, at layer.HostForClient) []assignment {
	s, ok := q.services.Service.Get(r, at.HostView)
	if !ok || s.External || s.Resolution != mesh.Static && s.Resolution != mesh.Passthrough {
		return nil
	}
	return q.assign(r, at, s, purpose{envoy.ServerName, true})
}

// purpose is what clusters are for.
type purpose struct {
	// name names a cluster.
	name func(port uint32, subset, host string) string
	// passing is true for clusters through which gateways forward TLS of the mesh.
	passing bool
}

// keep returns the endpoints that clusters may have.
func (p purpose) keep(list []mesh.PortEndpoint) []mesh.PortEndpoint {
	if !p.passing {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(e mesh.PortEndpoint) bool { return !e.TakesMeshTLS() })
}

// assign makes the assignments of all ports and subsets of a host.
func (q *Queries) assign(r *query.Reader, at layer.HostForClient, s *service.Service, of purpose) []assignment {
	policy := q.traffic.PolicyFor(r, at.HostView, at.Rules)
	preferring := q.traffic.DependsOnLocality(r, s.Near, policy)
	peers := envoy.Peers{On: q.scope.Measured(r), Namespace: s.Namespace}
	migrating := q.services.Migrating(r, s.Host)
	var out []assignment
	for _, p := range s.Ports {
		if p.Protocol == mesh.UDP {
			continue
		}
		list, far := q.reachable(r, s, of.keep(q.services.Endpoints(r, s, p.Number)), at.Client)
		if s.Near == mesh.OnlyNode {
			list = onNode(list, at.Site)
		}
		if s.ClusterLocal && at.Cluster != "" {
			list = inCluster(list, at.Cluster)
		}
		unready := slices.ContainsFunc(list, isUnready)
		one := func(subset *networking.Subset) {
			list := list
			if unready && q.hidesUnready(r, policy, subset, p.Number) {
				list = slices.DeleteFunc(slices.Clone(list), isUnready)
			}
			if (of.passing || len(far) > 0) && !meshTLS(q.traffic.Settings(r, policy, subset, p.Number)) {
				list = slices.DeleteFunc(slices.Clone(list), func(e mesh.PortEndpoint) bool { return of.passing || far.has(e) })
			}
			var preference *traffic.Preference
			if preferring && !migrating { // shares are of the whole service, wherever clients and endpoints are
				preference = q.traffic.Preference(r, s.Near, q.traffic.Settings(r, policy, subset, p.Number))
			}
			groups := preference.Arrange(q.services.Share(r, s.Host, far.throughGateways(inSubset(list, subset.GetLabels()))), at.Site)
			out = append(out, assignment{of.name(p.Number, subset.GetName(), s.Host), groups, s.External, peers})
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

// hidesUnready reports whether clients do not know the endpoints that take no requests at the moment: if the control plane is set so, and otherwise
// where a rule sets a minimum of healthy endpoints, below which Envoy uses all of them.
func (q *Queries) hidesUnready(r *query.Reader, policy *traffic.Policy, subset *networking.Subset, port uint32) bool {
	switch q.tables.Unready() {
	case mesh.UnreadyAlways:
		return false
	case mesh.UnreadyNever:
		return true
	}
	return q.traffic.Settings(r, policy, subset, port).OutlierDetection.GetMinHealthPercent() > 0
}

// isUnready reports whether an endpoint takes no requests at the moment.
func isUnready(e mesh.PortEndpoint) bool { return e.Health == mesh.Unready }

// onNode removes the endpoints that are not on the node of the client. It changes the list.
func onNode(list []mesh.PortEndpoint, at mesh.Site) []mesh.PortEndpoint {
	node := mesh.NodeOf(at)
	return slices.DeleteFunc(list, func(e mesh.PortEndpoint) bool { return node == "" || e.Node != node })
}

// inCluster removes the endpoints of other clusters. It changes the list.
func inCluster(list []mesh.PortEndpoint, cluster string) []mesh.PortEndpoint {
	return slices.DeleteFunc(list, func(e mesh.PortEndpoint) bool { return e.Cluster != "" && e.Cluster != cluster })
}

// inSubset are the endpoints with the labels of a subset.
func inSubset(list []mesh.PortEndpoint, labels map[string]string) []mesh.PortEndpoint {
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
