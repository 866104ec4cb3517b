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
	// BothFamilies is the value of a workload in a dual-stack cluster.
	BothFamilies
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
	return err == nil && (f == BothFamilies || a.Unmap().Is4() == (f == OnlyIPv4))
}
