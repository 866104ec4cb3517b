package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// FuzzLists: every list is either refused or read as written: formatted again it is the same list, and no item can be
// mistaken for another word of a rule.
func FuzzLists(f *testing.F) {
	for _, s := range []string{"", "*", "80", "80, 90,", "8000:8010", "10.0.0.0/8,fd00::/8", "eth0,tap+", "1337,1000-2000", "-5", "a b", "0x1", "1:2:3", "::/0", "!lo", "4294967295", "65536", "10.0.0.0/33"} {
		f.Add(s)
	}
	none := func(string) (uint16, error) { return 0, errors.New("unknown") }
	f.Fuzz(func(t *testing.T, s string) {
		if ports, err := parsePorts(s, none); err == nil {
			var out []string
			for _, p := range ports {
				if p.From > p.To {
					t.Errorf("%q has the range %v", s, p)
				}
				out = append(out, fmt.Sprintf("%d:%d", p.From, p.To))
			}
			if again, err := parsePorts(strings.Join(out, ","), none); err != nil || len(again) > len(ports) {
				t.Errorf("%q is %v, and then %v, %v", s, ports, again, err)
			}
		}
		if ranges, err := parseRanges(s); err == nil {
			for _, r := range ranges {
				if !r.IsValid() || r.Addr().Zone() != "" || r.Addr().Is4In6() {
					t.Errorf("%q has the range %v", s, r)
				}
			}
		}
		if names, err := parseInterfaces(s); err == nil {
			for _, n := range names {
				if n == "" || len(n) > maxInterface || n[0] == '-' || strings.ContainsAny(n, " \t\n\"'\\!,/") {
					t.Errorf("%q has the interface %q", s, n)
				}
			}
		}
		if ids, err := parseIDs(s, func(string) (uint32, error) { return 0, errors.New("unknown") }); err == nil {
			for _, i := range ids {
				if i.From > i.To || i.To == 1<<32-1 {
					t.Errorf("%q has the IDs %v", s, i)
				}
			}
		}
	})
}

// FuzzServers: whatever resolv.conf holds, servers are addresses that rules can match, each once.
func FuzzServers(f *testing.F) {
	f.Add([]byte("nameserver 10.0.0.1\nnameserver 10.0.0.1\n# nameserver 1.1.1.1\nnameserver fe80::1%eth0\nnameserver ::ffff:10.0.0.2 x\n"))
	f.Add([]byte("nameserver"))
	f.Fuzz(func(t *testing.T, text []byte) {
		seen := map[netip.Addr]bool{}
		for _, a := range parseServers(text) {
			if !a.IsValid() || a.Zone() != "" || a.Is4In6() || seen[a] {
				t.Errorf("%q has the server %v", text, a)
			}
			seen[a] = true
		}
	})
}
