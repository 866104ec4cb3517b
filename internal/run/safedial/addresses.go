package safedial

import "net/netip"

// never returns the blocks that are not connected to, besides the blocks that package netip knows: loopback, link-local and multicast.
func never() []netip.Prefix {
	return prefixes(
		"0.0.0.0/8", "255.255.255.255/32", // this network
		"192.0.0.0/24",        // IETF protocol assignments; 192.0.0.192 is the metadata service of Oracle Cloud Classic
		"192.88.99.0/24",      // relays of 6to4
		"168.63.129.16/32",    // the host of a virtual machine of Azure (WireServer)
		"100.100.100.200/32",  // the metadata service of Alibaba Cloud
		"fec0::/10",           // site-local addresses, which are out of use
		"fd00:ec2::/32",       // services of AWS: metadata (::254), DNS (::253), credentials of pods (::23)
		"fd20:ce::/64",        // the metadata service of Google Cloud
		"fd00:c1::/64",        // the metadata service of Oracle Cloud
		"fd00:42::/64",        // the metadata service of Scaleway
		"fd00:a9fe:a9fe::/64", // the metadata service of Linode
	)
}

// translation is a way to write an address of IPv4 in one of IPv6. A translator or a tunnel on the way sends packets to it.
type translation struct {
	block netip.Prefix
	// at are the places of the four bytes.
	at [4]int
	// inverted is true if each bit is inverted.
	inverted bool
}

// translations returns all ways. A prefix of RFC 6052 decides by its length where the bytes are; they step over byte 8.
func translations() []translation {
	last := [4]int{12, 13, 14, 15}
	local, nat64 := prefix("64:ff9b:1::/48"), prefix("64:ff9b::/96")
	return []translation{
		{block: prefix("::/96"), at: last},                     // IPv4-compatible
		{block: prefix("::ffff:0:0:0/96"), at: last},           // IPv4-translated (SIIT)
		{block: nat64, at: last},                               // NAT64
		{block: local, at: last},                               // NAT64 with a prefix of the network, of 96 bits
		{block: local, at: [4]int{9, 10, 11, 12}},              // of 64 bits
		{block: local, at: [4]int{7, 9, 10, 11}},               // of 56 bits
		{block: local, at: [4]int{6, 7, 9, 10}},                // of 48 bits
		{block: prefix("2002::/16"), at: [4]int{2, 3, 4, 5}},   // 6to4
		{block: prefix("2001::/32"), at: [4]int{4, 5, 6, 7}},   // Teredo: its server
		{block: prefix("2001::/32"), at: last, inverted: true}, // Teredo: its client
	}
}

// readings returns an address and all addresses of IPv4 that may be meant by it.
func readings(ip netip.Addr) []netip.Addr {
	all := []netip.Addr{ip}
	if !ip.Is6() {
		return all
	}
	b := ip.As16()
	for _, t := range translations() {
		if !t.block.Contains(ip) {
			continue
		}
		var four [4]byte
		for i, at := range t.at {
			four[i] = b[at]
			if t.inverted {
				four[i] = ^b[at]
			}
		}
		// Nothing but zeros stands where a prefix of another length has its address.
		if four[0] != 0 || t.block.Bits() != 48 {
			all = append(all, netip.AddrFrom4(four))
		}
	}
	// ISATAP: a tunnel of a site, whatever the prefix.
	if tail := [4]byte(b[8:12]); tail == [4]byte{0, 0, 0x5e, 0xfe} || tail == [4]byte{2, 0, 0x5e, 0xfe} {
		all = append(all, netip.AddrFrom4([4]byte(b[12:16])))
	}
	return all
}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, text := range list {
		out[i] = prefix(text)
	}
	return out
}
