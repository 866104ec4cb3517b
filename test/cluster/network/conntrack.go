package network

import (
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forget removes what the kernel remembers of UDP conversations with endpoints that are gone: nothing ends such a
// conversation, so a client that keeps its port would be sent to the old endpoint as long as it keeps asking. TCP
// connections end by themselves, and those to a pod that is going away must not be cut.
func forget(old, next *ruleset) {
	gone := map[netip.Addr]bool{}
	for name, rules := range old.chains {
		if !strings.Contains(name, "/udp/") {
			continue
		}
		left := targets(next.chains[name])
		for a := range targets(rules) {
			if !left[a] {
				gone[a] = true
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

// targets reads the addresses back out of a chain.
func targets(rules []string) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, r := range rules {
		for _, word := range strings.Fields(r) {
			if a, err := netip.ParseAddr(word); err == nil {
				all[a] = true
			} else if p, err := netip.ParseAddrPort(word); err == nil {
				all[p.Addr()] = true
			}
		}
	}
	return all
}
