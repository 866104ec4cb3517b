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
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b PortEndpoint) int { return a.Locality.Compare(b.Locality) })
	var groups []Group
	for i, e := range sorted {
		if i == 0 || e.Locality != sorted[i-1].Locality {
			groups = append(groups, Group{Locality: e.Locality})
		}
		g := &groups[len(groups)-1]
		g.Endpoints = append(g.Endpoints, e)
	}
	return groups
}
