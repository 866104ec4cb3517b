package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
		return q.findGateways(r, network)
	})
	q.mixedGateways = query.Define(g, "mixedGateways", func(a, b bool) bool { return a == b }, q.findMixedGateways)
	q.gatewayNames = query.Define(g, "gatewayHostNames", slices.Equal[[]GatewayName], q.findGatewayNames)
	q.hasGateways = query.Define(g, "hasGateways", func(a, b bool) bool { return a == b }, func(r *query.Reader, network string) (bool, bool) {
		_, ok := q.gateways.Get(r, network)
		return ok, true
	})
}

// HasGateways reports whether gateways lead into a network. They may have no address yet, because their names are not resolved.
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

// GatewaysFor are the gateways to endpoints of a network in a cluster that a client with addresses of some families uses: where there are gateways of both
// versions of IP, the ones of its versions.
func (q *Queries) GatewaysFor(r *query.Reader, network, cluster string, f mesh.Families) []Gateway {
	list := q.Gateways(r, network, cluster)
	if !mixed(list) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(g Gateway) bool { return !f.Has(g.Address) })
}

func (g Gateway) isIPv6() bool { return strings.Contains(g.Address, ":") }

// mixed reports whether gateways have addresses of both versions of IP.
func mixed(list []Gateway) bool {
	return slices.ContainsFunc(list, Gateway.isIPv6) && slices.ContainsFunc(list, func(g Gateway) bool { return !g.isIPv6() })
}

// MixedGateways reports whether some network has gateways of both versions of IP, so that endpoints may differ by the addresses of clients.
func (q *Queries) MixedGateways(r *query.Reader) bool {
	is, _ := q.mixedGateways.Get(r, All{})
	return is
}

func (q *Queries) findMixedGateways(r *query.Reader, _ All) (is, ok bool) {
	check := func(network string) {
		list, _ := q.gateways.Get(r, network)
		is = is || mixed(list)
	}
	for network := range q.tables.Networks.Named.Group(r, struct{}{}).All() {
		check(string(network))
	}
	for k := range q.tables.Networks.Labelled.Group(r, struct{}{}).All() {
		e, _ := q.tables.Networks.Entrances.Get(r, k)
		check(e.Network)
	}
	return is, true
}

// findGateways collects the gateways that the mesh networks name, and the Services with the label of the network. ok is false if there are
// none.
func (q *Queries) findGateways(r *query.Reader, network string) (list []Gateway, ok bool) {
	add := func(cluster, address string, port uint32) {
		if _, err := netip.ParseAddr(address); err == nil {
			list = append(list, Gateway{cluster, address, cmp.Or(port, gatewayPort)})
			return
		}
		// A name would make Envoy refuse all endpoints of a cluster. Until it is resolved, nothing is sent into the network: the addresses of
		// its endpoints may belong to others here.
		ok = true
		is, _ := q.tables.Networks.Resolved.Get(r, gatewayName(address))
		for ip := range is.Addresses.All() {
			list = append(list, Gateway{cluster, ip, cmp.Or(port, gatewayPort)})
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
		for _, k := range q.entrances(r, network, g.Service) {
			e, _ := q.tables.Networks.Entrances.Get(r, k)
			through(k, e, g.Port)
		}
	}
	for k := range q.tables.Networks.LabelledFor.Group(r, network).All() {
		e, _ := q.tables.Networks.Entrances.Get(r, k)
		through(k, e, e.Port)
	}
	slices.SortFunc(list, Gateway.compare)
	return slices.Compact(list), ok || len(list) > 0
}

// entrances returns the Services with a host that lead into a network, as the mesh networks say. Those in clusters that belong to another
// network lead there: clusters may have Services of one host.
func (q *Queries) entrances(r *query.Reader, network, host string) (list []api.Key) {
	members, ok := q.tables.Networks.Members.Get(r, struct{}{})
	for k := range q.tables.Networks.At.Group(r, host).All() {
		of := ""
		if ok {
			of = members.Of(cmp.Or(k.Cluster, q.tables.ClusterID()), "")
		}
		if of == "" || of == network {
			list = append(list, k)
		}
	}
	return list
}

// GatewayName is the host name of a gateway into a network, which is to be resolved.
type GatewayName struct {
	// Host is in lower case and has no dot at the end.
	Host string
	// Object is the Service whose load balancer has the name; zero if the mesh networks name it. Field is the field with the name.
	Object api.Key
	Field  string
}

// gatewayName is the form of a host name under which its addresses are kept.
func gatewayName(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// GatewayNames returns the host names of gateways, sorted by field.
func (q *Queries) GatewayNames(r *query.Reader) []GatewayName {
	list, _ := q.gatewayNames.Get(r, All{})
	return list
}

func (q *Queries) findGatewayNames(r *query.Reader, _ All) (list []GatewayName, ok bool) {
	add := func(k api.Key, field, address string) {
		if _, err := netip.ParseAddr(address); err != nil && address != "" {
			list = append(list, GatewayName{gatewayName(address), k, field})
		}
	}
	through := func(k api.Key) {
		e, _ := q.tables.Networks.Entrances.Get(r, k)
		if e.ByNode {
			return
		}
		for address := range e.Addresses.All() {
			add(k, "status.loadBalancer.ingress", address)
		}
	}
	for network := range q.tables.Networks.Named.Group(r, struct{}{}).All() {
		named, _ := q.tables.Networks.Gateways.Get(r, string(network))
		for i, g := range named {
			if g.Address != "" {
				add(api.Key{}, fmt.Sprintf("networks[%s].gateways[%d].address", network, i), g.Address)
				continue
			}
			for _, k := range q.entrances(r, string(network), g.Service) {
				through(k)
			}
		}
	}
	for k := range q.tables.Networks.Labelled.Group(r, struct{}{}).All() {
		through(k)
	}
	slices.SortFunc(list, func(a, b GatewayName) int {
		return cmp.Or(a.Object.Compare(b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Host, b.Host))
	})
	return slices.Compact(list), true
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
