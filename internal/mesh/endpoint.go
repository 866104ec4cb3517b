package mesh

import (
	"net/netip"
	"slices"
)

// PortEndpoint is an endpoint on the port where it serves.
type PortEndpoint struct {
	*Endpoint
	Port uint32
}

// Dialable reports whether the endpoint can be connected to without resolving a name, and is not known to be ill. One bad
// address would make Envoy refuse all endpoints of a cluster.
func (e PortEndpoint) Dialable() bool {
	if e.Unhealthy {
		return false
	}
	if path, ok := e.UnixPath(); ok {
		return path != ""
	}
	_, err := netip.ParseAddr(e.Address)
	return err == nil && ValidPort(e.Port)
}

// Group is endpoints of one locality that are as good as each other.
type Group struct {
	Locality Locality
	// Priority is 0 for those that are used first.
	Priority uint32
	// Weight is the group's share where localities share traffic; 0: what its endpoints weigh.
	Weight    uint32
	Endpoints []PortEndpoint
}

// ByLocality groups endpoints by locality, in order, and leaves their order otherwise.
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
