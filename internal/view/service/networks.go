package service

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// gatewayPort is the port of a gateway into a network if nothing else says one.
const gatewayPort = 15443

// Gateway is an address through which others reach the endpoints of a network.
type Gateway struct {
	// Cluster is the cluster of the Service behind the address; empty if the mesh networks name the address.
	Cluster, Address string
	Port             uint32
}

func (g Gateway) compare(o Gateway) int {
	return cmp.Or(cmp.Compare(g.Cluster, o.Cluster), cmp.Compare(g.Address, o.Address), cmp.Compare(g.Port, o.Port))
}

func (q *Queries) defineNetworks(g *query.Graph) {
	q.gateways = query.Define(g, "networkGateways", slices.Equal[[]Gateway], func(r *query.Reader, network string) ([]Gateway, bool) {
		list := q.findGateways(r, network)
		return list, len(list) > 0
	})
	q.hasGateways = query.Define(g, "hasGateways", func(a, b bool) bool { return a == b }, func(r *query.Reader, network string) (bool, bool) {
		_, ok := q.gateways.Get(r, network)
		return ok, true
	})
}

// HasGateways reports whether gateways lead into a network.
func (q *Queries) HasGateways(r *query.Reader, network string) bool {
	ok, _ := q.hasGateways.Get(r, network)
	return ok
}

// Gateways are the gateways to endpoints of a network in a cluster: those in this cluster, or else all of the network.
func (q *Queries) Gateways(r *query.Reader, network, cluster string) []Gateway {
	if !q.HasGateways(r, network) {
		return nil
	}
	all, _ := q.gateways.Get(r, network)
	var own []Gateway
	for _, g := range all {
		if g.Cluster == cluster && cluster != "" {
			own = append(own, g)
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}

// findGateways collects the gateways that the mesh networks name, and the Services with the label of the network.
func (q *Queries) findGateways(r *query.Reader, network string) []Gateway {
	var list []Gateway
	add := func(cluster, address string, port uint32) {
		// Names of load balancers are not resolved. One would make Envoy refuse all endpoints of a cluster.
		if _, err := netip.ParseAddr(address); err == nil {
			list = append(list, Gateway{cluster, address, cmp.Or(port, gatewayPort)})
		}
	}
	through := func(k api.Key, e kube.Entrance, port uint32) {
		if !e.ByNode {
			for address := range e.Addresses.All() {
				add(k.Cluster, address, port)
			}
			return
		}
		for _, address := range q.nodes(r, k.Cluster, e.NodeLabels) {
			add(k.Cluster, address, e.PortOf(cmp.Or(port, gatewayPort)))
		}
	}
	named, _ := q.tables.Networks.Gateways.Get(r, network)
	for _, g := range named {
		if g.Address != "" {
			add("", g.Address, g.Port)
			continue
		}
		for k := range q.tables.Networks.At.Group(r, g.Service).All() {
			e, _ := q.tables.Networks.Entrances.Get(r, k)
			through(k, e, g.Port)
		}
	}
	for k := range q.tables.Networks.LabelledFor.Group(r, network).All() {
		e, _ := q.tables.Networks.Entrances.Get(r, k)
		through(k, e, e.Port)
	}
	slices.SortFunc(list, Gateway.compare)
	return slices.Compact(list)
}

// nodes returns the external addresses of the nodes of a cluster with some labels.
func (q *Queries) nodes(r *query.Reader, cluster string, labels mesh.Labels) (list []string) {
	for k := range q.tables.Networks.NodesIn.Group(r, cluster).All() {
		n, ok := q.tables.Networks.Nodes.Get(r, k)
		if ok && !slices.ContainsFunc(labels.Items(), func(l mesh.Label) bool { return !n.Labels.Has(l) }) {
			list = append(list, n.Address)
		}
	}
	return list
}

// Networks returns a function that returns the network of an endpoint; empty if it is not known. An endpoint that a
// ServiceEntry lists, and a WorkloadEntry, may be in an address block of the mesh networks.
func (q *Queries) Networks(r *query.Reader) func(e *mesh.Endpoint) string {
	members, ok := q.tables.Networks.Members.Get(r, struct{}{})
	return func(e *mesh.Endpoint) string {
		if !ok || e.Network != "" || e.Cluster != "" {
			return e.Network
		}
		return members.Of("", e.Address)
	}
}
