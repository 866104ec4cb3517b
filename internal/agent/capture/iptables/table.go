package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
)

// line is a rule in the form of iptables-save: its chain, and the rest of the words.
type line struct{ chain, spec string }

// table is the part of captures in one table: their chains, and the jumps to them from other chains.
type table struct {
	chains []string
	rules  map[string][]string // of the own chains
	jumps  []line
	first  map[line]bool // jumps that stand before the rules of other programs; of wanted tables only
}

// tables are the tables that are not empty.
type tables map[rules.Table]table

// wanted returns the tables of a set.
func wanted(set rules.Set) tables {
	out := tables{}
	for _, p := range set.Parts {
		t := table{rules: map[string][]string{}, first: map[line]bool{}}
		for _, c := range p.Chains {
			t.chains = append(t.chains, c.Name)
			for _, r := range c.Rules {
				t.rules[c.Name] = append(t.rules[c.Name], spec(set.Family, r))
			}
		}
		for _, e := range p.Entries {
			l := line{string(e.Hook), spec(set.Family, e.Rule)}
			t.jumps = append(t.jumps, l)
			t.first[l] = e.First
		}
		out[p.Table] = t
	}
	return out
}

// parse reads the output of iptables-save, and returns the chains, rules and jumps of captures.
func parse(saved string) tables {
	out := tables{}
	var name rules.Table
	for text := range strings.Lines(saved) {
		text = strings.TrimSpace(text)
		if after, ok := strings.CutPrefix(text, "*"); ok {
			name = rules.Table(after)
			continue
		}
		t := out[name]
		if t.rules == nil {
			t.rules = map[string][]string{}
		}
		if after, ok := strings.CutPrefix(text, ":"); ok {
			chain, _, _ := strings.Cut(after, " ")
			if slices.Contains(rules.Names, chain) {
				t.chains = append(t.chains, chain)
				out[name] = t
			}
			continue
		}
		after, ok := strings.CutPrefix(text, "-A ")
		if !ok {
			continue
		}
		chain, rest, _ := strings.Cut(after, " ")
		switch {
		case slices.Contains(rules.Names, chain):
			t.rules[chain] = append(t.rules[chain], rest)
		case leads(rest):
			t.jumps = append(t.jumps, line{chain, rest})
		default:
			continue
		}
		out[name] = t
	}
	return out
}

// leads reports whether a rule leads to a chain of a capture.
func leads(spec string) bool {
	words := strings.Fields(spec)
	for i, w := range words[:max(0, len(words)-1)] {
		if (w == "-j" || w == "-g") && slices.Contains(rules.Names, words[i+1]) {
			return true
		}
	}
	return false
}

// difference says how two states of captures differ.
type difference int

const (
	equal difference = iota
	reordered
	different
)

// names are the tables that have rules or should have them: first the tables of rules.Tables, in their order.
func names(present tables) []rules.Table {
	out := slices.Clone(rules.Tables)
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// compare compares the installed rules with the wanted ones.
func compare(present, want tables) difference {
	result := equal
	for _, name := range names(present) {
		p, w := present[name], want[name]
		result = max(result, compareLists(p.chains, w.chains, true), compareLists(words(p.jumps), words(w.jumps), false))
		for _, chain := range union(p.chains, w.chains) {
			result = max(result, compareLists(p.rules[chain], w.rules[chain], false))
		}
	}
	return result
}

// words writes jumps, chain by chain: the order of the chains depends on the version of iptables.
func words(lines []line) []string {
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.chain, b.chain) })
	var out []string
	for _, l := range lines {
		out = append(out, l.chain+" "+l.spec)
	}
	return out
}

// compareLists compares lists of rules. Their order matters unless anyOrder.
func compareLists(a, b []string, anyOrder bool) difference {
	a, b = normal(a), normal(b)
	if slices.Equal(a, b) {
		return equal
	}
	slices.Sort(a)
	slices.Sort(b)
	switch {
	case !slices.Equal(a, b):
		return different
	case anyOrder:
		return equal
	}
	return reordered
}

// normal sorts the words of rules, because the order of conditions in a rule depends on the version of iptables. A negation stays
// with the word after it.
func normal(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		w := strings.Fields(strings.ReplaceAll(s, "! ", "!"))
		slices.Sort(w)
		out = append(out, strings.Join(w, " "))
	}
	return out
}

// change writes the input of iptables-restore that turns the installed rules into the wanted ones. Each table changes at once. The
// jumps of wanted tables come last: packets meet the new rules only when all tables before have theirs. Tables that are equal
// are left out, unless all is true.
func change(present, want tables, all bool) string {
	var b strings.Builder
	for _, name := range names(present) {
		p, w := present[name], want[name]
		if same := compare(tables{name: p}, tables{name: w}) == equal; same && (!all || len(w.chains) == 0) {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", name)
		// This form makes a chain, or empties it if it exists.
		for _, chain := range union(p.chains, w.chains) {
			fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
		}
		for _, l := range p.jumps {
			fmt.Fprintf(&b, "-D %s %s\n", l.chain, l.spec)
		}
		for _, chain := range w.chains {
			for _, r := range w.rules[chain] {
				fmt.Fprintf(&b, "-A %s %s\n", chain, r)
			}
		}
		// The last one inserted stands first.
		for _, l := range slices.Backward(w.jumps) {
			if w.first[l] {
				fmt.Fprintf(&b, "-I %s 1 %s\n", l.chain, l.spec)
			}
		}
		for _, l := range w.jumps {
			if !w.first[l] {
				fmt.Fprintf(&b, "-A %s %s\n", l.chain, l.spec)
			}
		}
		for _, chain := range p.chains {
			if !slices.Contains(w.chains, chain) {
				fmt.Fprintf(&b, "-X %s\n", chain)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Text writes a set as the input of iptables-restore, for a network namespace without rules.
func Text(set rules.Set) string { return change(nil, wanted(set), true) }
