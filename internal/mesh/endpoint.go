package mesh

import (
	"net/netip"
	"slices"
)

// PortEndpoint is an endpoint with its port.
type PortEndpoint struct {
	*Endpoint
	Port uint32
	// Plain is true if a policy says that the workload takes no mesh TLS at this port.
	Plain bool
	// Source is the registry that the endpoint comes from. It is only set for a service that registries have.
	Source string
}

// TakesMeshTLS reports whether clients should use mesh TLS.
func (e PortEndpoint) TakesMeshTLS() bool { return e.MeshTLS && !e.Plain }

// Dialable reports whether clients may know the endpoint and it has an address that needs no name resolution. One invalid address would
// make Envoy refuse all endpoints of a cluster.
func (e PortEndpoint) Dialable() bool {
	if e.Health == Unusable {
		return false
	}
	if path, ok := e.UnixPath(); ok {
		return path != ""
	}
	_, err := netip.ParseAddr(e.Address)
	return err == nil && ValidPort(e.Port)
}

// Group is a group of endpoints of one locality and one priority.
type Group struct {
	Locality Locality
	// Priority is 0 for the endpoints that are used first.
	Priority uint32
	// Weight is the weight of the group in locality-weighted load balancing; 0 for the sum of the weights of its endpoints.
	Weight    uint32
	Endpoints []PortEndpoint
}

// ByLocality groups endpoints by locality. Groups are in order of locality, and endpoints keep their order within a group.
func ByLocality(list []PortEndpoint) []Group {
	var groups []Group
	var sizes []int
	known := make(map[Locality]int)
	of := make([]int, len(list)) // the group of each endpoint
	for i, e := range list {
		if i > 0 && e.Locality == list[i-1].Locality {
			of[i] = of[i-1]
		} else {
			n, ok := known[e.Locality]
			if !ok {
				n = len(groups)
				known[e.Locality] = n
				groups, sizes = append(groups, Group{Locality: e.Locality}), append(sizes, 0)
			}
			of[i] = n
		}
		sizes[of[i]]++
	}
	for n := range groups {
		groups[n].Endpoints = make([]PortEndpoint, 0, sizes[n])
	}
	for i, e := range list {
		g := &groups[of[i]]
		g.Endpoints = append(g.Endpoints, e)
	}
	slices.SortFunc(groups, func(a, b Group) int { return a.Locality.Compare(b.Locality) })
	return groups
}
