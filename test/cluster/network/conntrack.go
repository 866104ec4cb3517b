package network

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forget removes what the kernel remembers of UDP conversations with endpoints that are gone: nothing ends such a
// conversation, so a client that keeps its port would be sent to the old endpoint as long as it keeps asking. TCP
// connections end by themselves, and those to a pod that is going away must not be cut.
func forget(old, next *ruleset) {
	gone := map[netip.Addr]bool{}
	for name, was := range old.chains {
		if was.protocol != "udp" {
			continue
		}
		for _, t := range was.targets {
			left := func(o netip.AddrPort) bool { return o.Addr() == t.Addr() }
			if !slices.ContainsFunc(next.chains[name].targets, left) {
				gone[t.Addr()] = true
			}
		}
	}
	for a := range gone {
		family := netlink.InetFamily(unix.AF_INET)
		if a.Is6() {
			family = unix.AF_INET6
		}
		f := &netlink.ConntrackFilter{}
		// Both never fail for values of the right type; without a filter nothing must be deleted.
		if f.AddProtocol(unix.IPPROTO_UDP) != nil || f.AddIP(netlink.ConntrackReplySrcIP, net.IP(a.AsSlice())) != nil {
			continue
		}
		// Best effort: a kernel without this interface leaves the conversation to its timeout of 30 seconds.
		_, _ = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
	}
}
