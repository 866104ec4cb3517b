package mesh

import (
	"cmp"
	"net/netip"
)

// Ranges are the ranges from which addresses are allocated to the hosts of ServiceEntries.
type Ranges struct{ IPv4, IPv6 netip.Prefix }

// DefaultRanges are the ranges that Istio uses. No host on the internet has an address in them.
func DefaultRanges() Ranges {
	return Ranges{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}
}

// A range has up to 64 sections, in which hosts choose their addresses.
const (
	// sectionBits is the number of bits of an address that name its section, in a range that is large enough.
	sectionBits = 6
	// leastBits is the least number of bits that name an address in its section.
	leastBits = 10
	// mostBits is the largest number of bits of an address that are chosen.
	mostBits = 48
)

// SectionBits are the numbers of bits of an address in a range that name its section, and an address in it.
func SectionBits(of netip.Prefix) (sections, within int) {
	bits := min(of.Addr().BitLen()-of.Bits(), mostBits)
	sections = max(0, min(sectionBits, bits-leastBits))
	return sections, bits - sections
}

// SectionOf returns the section of an address; false if it is in no range.
func (a Ranges) SectionOf(ip netip.Addr) (netip.Prefix, bool) {
	for _, r := range []netip.Prefix{a.IPv4, a.IPv6} {
		if r.Contains(ip) {
			_, within := SectionBits(r)
			p, err := ip.Prefix(ip.BitLen() - within)
			return p, err == nil
		}
	}
	return netip.Prefix{}, false
}

// Covers returns the range if a block has a whole section of one; false otherwise. Such a block is not avoided when
// addresses are chosen.
func (a Ranges) Covers(block netip.Prefix) (netip.Prefix, bool) {
	for _, r := range []netip.Prefix{a.IPv4, a.IPv6} {
		if _, within := SectionBits(r); r.Overlaps(block) && block.Bits() <= r.Addr().BitLen()-within {
			return r, true
		}
	}
	return netip.Prefix{}, false
}

// Has reports whether addresses of a block may be allocated.
func (a Ranges) Has(block netip.Prefix) bool { return a.IPv4.Overlaps(block) || a.IPv6.Overlaps(block) }

// AddressBlock is a block of addresses.
type AddressBlock struct{ netip.Prefix }

// Compare orders by the first address, then by size.
func (a AddressBlock) Compare(o AddressBlock) int {
	return cmp.Or(a.Addr().Compare(o.Addr()), cmp.Compare(a.Bits(), o.Bits()))
}

// AppendTo appends an unambiguous form.
func (a AddressBlock) AppendTo(b []byte) []byte { return a.Prefix.AppendTo(b) }
