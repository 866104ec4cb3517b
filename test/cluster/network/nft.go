package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// declare adds the part of the table that never changes while the cluster lives to a transaction, and removes a table that is
// left from an earlier run. Base chains are not recreated later, so connections that are translated stay so through every
// change.
func (o Options) declare(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	for _, six := range []bool{false, true} {
		name, address := "4", "ipv4_addr"
		if six {
			name, address = "6", "ipv6_addr"
		}
		tx.Add(&knftables.Map{Name: "services" + name, Type: address + " . inet_proto . inet_service : verdict"})
		tx.Add(&knftables.Map{Name: "nodeports" + name, Type: "inet_proto . inet_service : verdict"})
		tx.Add(&knftables.Set{Name: "loops" + name, Type: address + " . " + address})
		tx.Add(&knftables.Set{Name: "nodes" + name, Type: address})
		addAll(tx, "nodes"+name, o.Nodes, six)
		tx.Add(&knftables.Set{Name: "virtual" + name, Type: address, Flags: []knftables.SetFlag{knftables.IntervalFlag}})
		addAll(tx, "virtual"+name, o.Virtual, six)
	}
	nat, filter := knftables.NATType, knftables.FilterType
	chain(tx, "translate", nil, "", "",
		"ip daddr . meta l4proto . th dport vmap @services4",
		"ip6 daddr . meta l4proto . th dport vmap @services6",
		"ip daddr @nodes4 meta l4proto . th dport vmap @nodeports4",
		"ip6 daddr @nodes6 meta l4proto . th dport vmap @nodeports6")
	chain(tx, "prerouting", &nat, knftables.PreroutingHook, knftables.DNATPriority, fmt.Sprintf("iifname %q jump translate", o.Devices+"*"))
	chain(tx, "output", &nat, knftables.OutputHook, knftables.DNATPriority, "jump translate")
	chain(tx, "postrouting", &nat, knftables.PostroutingHook, knftables.SNATPriority,
		"ct status dnat ip saddr . ip daddr @loops4 masquerade",
		"ct status dnat ip6 saddr . ip6 daddr @loops6 masquerade")
	chain(tx, "refuse", nil, "", "", "meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable")
	chain(tx, "unknown", nil, "", "", "ip daddr @virtual4 goto refuse", "ip6 daddr @virtual6 goto refuse")
	chain(tx, "forward", &filter, knftables.ForwardHook, knftables.FilterPriority,
		fmt.Sprintf("iifname != %[1]q oifname != %[1]q accept", o.Devices+"*"),
		"jump unknown",
		fmt.Sprintf("iifname %[1]q oifname %[1]q accept", o.Devices+"*"),
		"goto refuse")
	chain(tx, "local", &filter, knftables.OutputHook, knftables.FilterPriority, "jump unknown")
}

// chain adds a chain with its rules. A base chain has a type, a hook and a priority; a chain that others lead to has none.
func chain(tx *knftables.Transaction, name string, typ *knftables.BaseChainType, hook knftables.BaseChainHook, priority knftables.BaseChainPriority, rules ...string) {
	c := &knftables.Chain{Name: name}
	if typ != nil {
		c.Type, c.Hook, c.Priority = typ, &hook, &priority
	}
	tx.Add(c)
	for _, rule := range rules {
		tx.Add(&knftables.Rule{Chain: name, Rule: rule})
	}
}

// addAll fills a set with the addresses or ranges of one family.
func addAll[A netip.Addr | netip.Prefix](tx *knftables.Transaction, set string, all []A, six bool) {
	for _, a := range all {
		if text := fmt.Sprint(a); strings.Contains(text, ":") == six {
			tx.Add(&knftables.Element{Set: set, Key: []string{text}})
		}
	}
}

// replaceRules adds to a transaction what turns one ruleset into another. Elements lead only to chains that exist, and a chain is
// deleted after the last element that led to it. It adds nothing if the rulesets are equal.
func replaceRules(tx *knftables.Transaction, old, next *ruleset) {
	for _, name := range slices.Sorted(maps.Keys(next.chains)) {
		if was, ok := old.chains[name]; ok && was.equal(next.chains[name]) {
			continue
		}
		tx.Add(&knftables.Chain{Name: name})
		tx.Flush(&knftables.Chain{Name: name})
		tx.Add(&knftables.Rule{Chain: name, Rule: next.chains[name].rule()})
	}
	for _, set := range slices.Sorted(maps.Keys(next.sets)) {
		was, is := old.sets[set], next.sets[set]
		for _, e := range slices.SortedFunc(maps.Keys(was), element.compare) {
			if target, ok := is[e]; !ok || target != was[e] {
				tx.Delete(e.in(set, was[e]))
			}
		}
		for _, e := range slices.SortedFunc(maps.Keys(is), element.compare) {
			if target, ok := was[e]; !ok || target != is[e] {
				tx.Add(e.in(set, is[e]))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.chains)) {
		if _, stays := next.chains[name]; !stays {
			tx.Flush(&knftables.Chain{Name: name})
			tx.Delete(&knftables.Chain{Name: name})
		}
	}
}
