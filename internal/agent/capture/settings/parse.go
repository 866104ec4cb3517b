package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxGroups is how many groups may be listed, as with Istio. More would make rules slow.
const maxGroups = 64

// maxInterface is the length of the longest name of a network interface.
const maxInterface = 15

// list splits a comma-separated list. Blanks around an element and empty elements do not count, nor do repetitions.
func list(s string) []string {
	var out []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// parsePorts parses a list of ports, of ranges like 8000:8010, and of names of services that lookup knows.
func parsePorts(s string, lookup func(name string) (uint16, error)) ([]Ports, error) {
	var out []Ports
	for _, e := range list(s) {
		if first := e[0] | 0x20; first >= 'a' && first <= 'z' {
			port, err := lookup(e)
			if err != nil {
				return nil, err
			}
			out = append(out, Ports{port, port})
			continue
		}
		from, to, ranged := strings.Cut(e, ":")
		if !ranged {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err = errors.Join(err, err2); err != nil || a > b {
			return nil, fmt.Errorf("%q is no port: give numbers from 0 to 65535, or ranges of them like 8000:8010, with commas between", e)
		}
		out = append(out, Ports{From: uint16(a), To: uint16(b)})
	}
	return out, nil
}

// parsePortList parses a list of ports, or "*" for all.
func parsePortList(s string, lookup func(name string) (uint16, error)) (PortList, error) {
	if strings.TrimSpace(s) == "*" {
		return PortList{All: true}, nil
	}
	ports, err := parsePorts(s, lookup)
	return PortList{List: ports}, err
}

// parseRanges parses a list of CIDR ranges.
func parseRanges(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, e := range list(s) {
		p, err := netip.ParsePrefix(e)
		if err == nil && p.Addr().Is4In6() {
			err = errors.New("IPv4 in IPv6")
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no range of addresses: give ranges like 10.96.0.0/16 or fd00::/8, with commas between", e)
		}
		out = append(out, p)
	}
	return out, nil
}

// parseRangeList parses a list of CIDR ranges, or "*" for all addresses.
func parseRangeList(s string) (RangeList, error) {
	if strings.TrimSpace(s) == "*" {
		return RangeList{All: true}, nil
	}
	ranges, err := parseRanges(s)
	return RangeList{List: ranges}, err
}

// parseInterfaces parses a list of network interfaces. A name that ends in + matches all interfaces with that prefix.
func parseInterfaces(s string) ([]string, error) {
	out := list(s)
	for _, e := range out {
		plain := !strings.ContainsFunc(e, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/"'\*!`, r) })
		if !plain || len(e) > maxInterface || strings.HasPrefix(e, "-") || strings.Contains(strings.TrimSuffix(e, "+"), "+") {
			return nil, fmt.Errorf("%q is no name of a network interface", e)
		}
	}
	return out, nil
}

// parseIDs parses a list of IDs, of ranges of IDs like 1000-1999, and of names that lookup knows.
func parseIDs(s string, lookup func(name string) (uint32, error)) ([]IDs, error) {
	var out []IDs
	for _, e := range list(s) {
		ids, numeric, err := parseID(e)
		if err != nil {
			return nil, err
		}
		if !numeric {
			id, err := lookup(e)
			if err != nil {
				return nil, err
			}
			ids = IDs{From: id, To: id}
		}
		out = append(out, ids)
	}
	return out, nil
}

// parseID parses an ID or a range of IDs. It reports whether it is one; otherwise it is a name.
func parseID(s string) (ids IDs, numeric bool, err error) {
	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	for _, part := range []string{from, to} {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			return IDs{}, false, nil
		}
	}
	a, err := strconv.ParseUint(from, 10, 32)
	b, err2 := strconv.ParseUint(to, 10, 32)
	// The highest number is not an ID: the kernel uses it for "none".
	if err != nil || err2 != nil || a > b || b == 1<<32-1 {
		return IDs{}, false, fmt.Errorf("%q is no ID: give a number below 4294967295, a range like 1000-1999, or a name", s)
	}
	return IDs{From: uint32(a), To: uint32(b)}, true, nil
}

// parseServers returns the name servers of a resolv.conf.
func parseServers(text []byte) []netip.Addr {
	var out []netip.Addr
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		// A zone says by which interface a server is reached. Rules cannot match it, and need not.
		if a, err := netip.ParseAddr(f[1]); err == nil && !slices.Contains(out, a.WithZone("").Unmap()) {
			out = append(out, a.WithZone("").Unmap())
		}
	}
	return out
}
