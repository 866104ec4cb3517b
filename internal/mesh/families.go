package mesh

import "net/netip"

// Families are the IP versions of the addresses of a workload.
type Families uint8

// The families.
const (
	// OnlyIPv4 is also the value of a workload without addresses.
	OnlyIPv4 Families = iota
	// OnlyIPv6 is the value of a workload in a cluster without IPv4.
	OnlyIPv6
	// BothFamilies is the value of a workload in a dual-stack cluster. Its proxy calls services at their first addresses, and resolves names to
	// IPv4.
	BothFamilies
	// DualStack is the value of such a workload if the mesh is dual-stack too: its proxy uses the addresses of both versions.
	DualStack
)

// FamiliesOf returns the families of the addresses of a workload. Addresses that hold on one link only do not count.
func FamiliesOf(addresses []string) Families {
	var four, six bool
	for _, text := range addresses {
		switch a, err := netip.ParseAddr(text); {
		case err != nil || a.IsLoopback() || a.IsLinkLocalUnicast():
		case a.Unmap().Is4():
			four = true
		default:
			six = true
		}
	}
	switch {
	case !six:
		return OnlyIPv4
	case !four:
		return OnlyIPv6
	}
	return BothFamilies
}

// Has reports whether an address is of one of the families.
func (f Families) Has(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && (f.Two() || a.Unmap().Is4() == (f == OnlyIPv4))
}

// Two reports whether there are addresses of both versions.
func (f Families) Two() bool { return f == BothFamilies || f == DualStack }

// Other returns the first of some addresses that is of the other IP version than a given one; empty if there is none. Addresses that hold on
// one link only do not count.
func Other(address string, list ...string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	for _, text := range list {
		if b, err := netip.ParseAddr(text); err == nil && b.Unmap().Is4() != a.Unmap().Is4() && !b.IsLinkLocalUnicast() {
			return text
		}
	}
	return ""
}
