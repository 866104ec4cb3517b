// Package routes makes the routes that rules need: the route that brings marked packets to transparent listeners, and the IPv6
// address from which the proxy calls its application.
//
// Its routes have a protocol number of their own, so that a clean-up finds them without the settings that they were made with. It
// keeps nothing in memory and starts no goroutines.
package routes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// protocol marks rules and routes of captures. The kernel does not interpret numbers from 4 on, and no routing daemon uses this one.
const protocol = 133

// loopback is the name of the loopback interface.
const loopback = "lo"

// versions are the versions of IP, as netlink numbers them.
var versions = map[rules.Family]int{rules.IPv4: netlink.FAMILY_V4, rules.IPv6: netlink.FAMILY_V6}

// network is a prefix in the form that netlink takes.
func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// wanted returns the versions of IP that are captured.
func wanted(s settings.Settings) []rules.Family {
	var out []rules.Family
	if s.IPv4 {
		out = append(out, rules.IPv4)
	}
	if s.IPv6 {
		out = append(out, rules.IPv6)
	}
	return out
}

// transparent reports whether there are transparent listeners.
func transparent(s settings.Settings) bool {
	return s.Mode == settings.TProxy && (s.InboundPorts.All || len(s.InboundPorts.List) > 0)
}

// Commands returns the commands of the program ip that have the effect of Apply.
func Commands(s settings.Settings) []string {
	var out []string
	if s.IPv6 {
		out = append(out, fmt.Sprintf("ip -6 addr add %v dev %s", rules.IPv6.Passthrough(), loopback))
	}
	if transparent(s) {
		for _, f := range wanted(s) {
			out = append(out,
				fmt.Sprintf("ip -%d rule add fwmark %d lookup %d protocol %d", f, s.Mark, s.Table, protocol),
				fmt.Sprintf("ip -%d route add local %v dev %s table %d proto %d", f, f.Everywhere(), loopback, s.Table, protocol))
		}
	}
	return out
}

// Apply adds the routes and addresses that the settings need, and removes the ones of earlier settings. Existing ones stay as they are.
func Apply(s settings.Settings) error {
	link, err := netlink.LinkByName(loopback)
	if err != nil {
		return fmt.Errorf("looking for the interface %s: %w", loopback, err)
	}
	if s.IPv6 {
		err := netlink.AddrAdd(link, &netlink.Addr{IPNet: network(rules.IPv6.Passthrough()), Flags: unix.IFA_F_NODAD})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the address %v to %s: %w", rules.IPv6.Passthrough(), loopback, err)
		}
	}
	if !transparent(s) {
		return clean(0, 0)
	}
	if err := clean(s.Mark, s.Table); err != nil {
		return err
	}
	for _, f := range wanted(s) {
		rule := netlink.NewRule()
		rule.Family, rule.Mark, rule.Table, rule.Protocol = versions[f], s.Mark, s.Table, protocol
		if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the routing rule for packets with the mark %d: %w", s.Mark, err)
		}
		route := &netlink.Route{
			Family: versions[f], LinkIndex: link.Attrs().Index, Dst: network(f.Everywhere()),
			Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: s.Table, Protocol: protocol,
		}
		if f == rules.IPv6 {
			route.Scope = netlink.SCOPE_UNIVERSE // IPv6 has no other
		}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("adding the route of the table %d to %s: %w", s.Table, loopback, err)
		}
	}
	return nil
}

// Clean removes everything that captures have made, and the routing rules for the mark and table with their routes, whichever program made them.
func Clean(mark uint32, table int) error {
	if err := clean(mark, table); err != nil {
		return err
	}
	link, err := netlink.LinkByName(loopback)
	if err != nil {
		return fmt.Errorf("looking for the interface %s: %w", loopback, err)
	}
	err = netlink.AddrDel(link, &netlink.Addr{IPNet: network(rules.IPv6.Passthrough())})
	if absent(err) {
		return nil
	}
	return fmt.Errorf("removing the address %v from %s: %w", rules.IPv6.Passthrough(), loopback, err)
}

// absent reports whether nothing was to be removed, or there is no IPv6 at all.
func absent(err error) bool {
	return err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)
}

// clean removes routing rules and routes of captures, and the ones for the mark and table if they are not 0.
func clean(mark uint32, table int) error {
	for _, family := range versions {
		list, err := netlink.RuleList(family)
		if absent(err) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("listing routing rules: %w", err)
		}
		for _, r := range list {
			if r.Protocol != protocol && (mark == 0 || r.Mark != mark || r.Table != table) {
				continue
			}
			r.Family = family
			if err := netlink.RuleDel(&r); !absent(err) {
				return fmt.Errorf("removing the routing rule for packets with the mark %d: %w", r.Mark, err)
			}
			if err := removeRoutes(family, r.Table); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeRoutes removes the routes to the loopback interface from a table, unless it is a table of the system.
func removeRoutes(family, table int) error {
	if table >= unix.RT_TABLE_DEFAULT && table <= unix.RT_TABLE_LOCAL || table == 0 {
		return nil
	}
	list, err := netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil && !absent(err) {
		return fmt.Errorf("listing the routes of the table %d: %w", table, err)
	}
	for _, r := range list {
		if r.Type != unix.RTN_LOCAL || r.Dst != nil && len(r.Dst.Mask) > 0 && r.Dst.Mask[0] != 0 {
			continue
		}
		if err := netlink.RouteDel(&r); !absent(err) {
			return fmt.Errorf("removing a route of the table %d: %w", table, err)
		}
	}
	return nil
}
