package network

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
)

// skeleton is the part of the table that never changes while the cluster lives. Base chains are not made anew, so
// connections that are translated stay so through every change.
func (o Options) skeleton() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %s\ntable inet %s {\n", o.Table, o.Table, o.Table)
	for _, six := range []bool{false, true} {
		name, address := "4", "ipv4_addr"
		if six {
			name, address = "6", "ipv6_addr"
		}
		fmt.Fprintf(&b, "\tmap services%s { type %s . inet_proto . inet_service : verdict; }\n", name, address)
		fmt.Fprintf(&b, "\tmap nodeports%s { type inet_proto . inet_service : verdict; }\n", name)
		fmt.Fprintf(&b, "\tset loops%s { type %s . %s; }\n", name, address, address)
		fmt.Fprintf(&b, "\tset nodes%s { type %s; %s}\n", name, address, elements(o.Nodes, six))
		fmt.Fprintf(&b, "\tset virtual%s { type %s; flags interval; %s}\n", name, address, elements(o.Virtual, six))
	}
	fmt.Fprintf(&b, `	chain translate {
		ip daddr . meta l4proto . th dport vmap @services4
		ip6 daddr . meta l4proto . th dport vmap @services6
		ip daddr @nodes4 meta l4proto . th dport vmap @nodeports4
		ip6 daddr @nodes6 meta l4proto . th dport vmap @nodeports6
	}
	chain prerouting { type nat hook prerouting priority dstnat; iifname "%[1]s*" jump translate; }
	chain output { type nat hook output priority -100; jump translate; }
	chain postrouting {
		type nat hook postrouting priority srcnat
		ct status dnat ip saddr . ip daddr @loops4 masquerade
		ct status dnat ip6 saddr . ip6 daddr @loops6 masquerade
	}
	chain refuse {
		meta l4proto tcp reject with tcp reset
		reject with icmpx port-unreachable
	}
	chain unknown {
		ip daddr @virtual4 goto refuse
		ip6 daddr @virtual6 goto refuse
	}
	chain forward {
		type filter hook forward priority filter
		iifname != "%[1]s*" oifname != "%[1]s*" accept
		jump unknown
		iifname "%[1]s*" oifname "%[1]s*" accept
		goto refuse
	}
	chain local { type filter hook output priority filter; jump unknown; }
}
`, o.Devices)
	return b.String()
}

// elements declares the content of a set, as far as it is of one family.
func elements[A netip.Addr | netip.Prefix](all []A, six bool) string {
	var kept []string
	for _, a := range all {
		if text := fmt.Sprint(a); strings.Contains(text, ":") == six {
			kept = append(kept, text)
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return "elements = { " + strings.Join(kept, ", ") + " } "
}

// difference is the script that turns one ruleset into another, in one transaction: elements lead only to chains that are
// there, and a chain goes after the last element that led to it. It is empty if there is nothing to do.
func difference(table string, old, next *ruleset) string {
	var b strings.Builder
	chains := slices.Sorted(maps.Keys(next.chains))
	for _, name := range chains {
		if slices.Equal(old.chains[name], next.chains[name]) {
			continue
		}
		fmt.Fprintf(&b, "add chain inet %s %s\nflush chain inet %s %s\n", table, name, table, name)
		for _, rule := range next.chains[name] {
			fmt.Fprintf(&b, "add rule inet %s %s %s\n", table, name, rule)
		}
	}
	for _, set := range slices.Sorted(maps.Keys(next.sets)) {
		var gone, fresh []string
		for e, v := range old.sets[set] {
			if w, stays := next.sets[set][e]; !stays || v != w {
				gone = append(gone, e)
			}
		}
		for e, v := range next.sets[set] {
			if w, was := old.sets[set][e]; was && v == w {
				continue
			}
			if v != "" {
				e += " : " + v
			}
			fresh = append(fresh, e)
		}
		command(&b, "delete", table, set, gone)
		command(&b, "add", table, set, fresh)
	}
	for _, name := range slices.Sorted(maps.Keys(old.chains)) {
		if _, stays := next.chains[name]; !stays {
			fmt.Fprintf(&b, "flush chain inet %s %s\ndelete chain inet %s %s\n", table, name, table, name)
		}
	}
	return b.String()
}

func command(b *strings.Builder, verb, table, set string, elements []string) {
	if len(elements) > 0 {
		slices.Sort(elements)
		fmt.Fprintf(b, "%s element inet %s %s { %s }\n", verb, table, set, strings.Join(elements, ", "))
	}
}

// nft runs a script as one transaction.
func nft(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := out.String()
		if len(text) > 2000 {
			text = text[:2000] + "..."
		}
		return fmt.Errorf("nft: %w\n%s", err, text)
	}
	return nil
}
