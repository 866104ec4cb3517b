// Package nftables applies rules with nftables alone, in one table of its own.
//
// The table is replaced as a whole by one transaction, for both versions of IP, so there is never half of it. The tables of
// Istio are removed as well: an earlier capture made them. The package keeps nothing in memory and starts no goroutines.
package nftables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
)

// Table is the name of the table.
const Table = "pilot-capture"

// captures are the names of all tables of captures, of this program and of Istio.
var captures = []string{Table, "istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw"}

// ErrMissing means that the program nft is not installed.
var ErrMissing = errors.New("nft is not installed, or not on PATH; without --native-nftables, capture uses iptables-restore")

// hook is a base chain. Its priority is one after the priority of iptables, so that rules of other programs, in iptables or nftables, come first.
type hook struct {
	table    rules.Table
	from     rules.Hook
	kind     knftables.BaseChainType
	at       knftables.BaseChainHook
	priority knftables.BaseChainPriority
}

// hooks are the base chains. When a rule of the kind "route" changes the mark of a packet, the kernel routes the packet again.
var hooks = []hook{
	{rules.Raw, rules.Prerouting, knftables.FilterType, knftables.PreroutingHook, "-299"},
	{rules.Raw, rules.Output, knftables.FilterType, knftables.OutputHook, "-299"},
	{rules.Mangle, rules.Prerouting, knftables.FilterType, knftables.PreroutingHook, "-149"},
	{rules.Mangle, rules.Output, knftables.RouteType, knftables.OutputHook, "-149"},
	{rules.NAT, rules.Prerouting, knftables.NATType, knftables.PreroutingHook, "-99"},
	{rules.NAT, rules.Output, knftables.NATType, knftables.OutputHook, "-99"},
}

// name is the name of a base chain.
func (h hook) name() string { return string(h.table) + "-" + strings.ToLower(string(h.from)) }

// chainName is the name of a chain of a set in the table, where both versions of IP and all tables of the set are together.
func chainName(f rules.Family, t rules.Table, chain string) string {
	return header(f) + "-" + string(t) + "-" + chain
}

// fill adds the rules of the sets to a transaction that has made the table.
func fill(tx *knftables.Transaction, sets []rules.Set) {
	for _, s := range sets {
		for _, p := range s.Parts {
			for _, c := range p.Chains {
				tx.Add(&knftables.Chain{Name: chainName(s.Family, p.Table, c.Name)})
			}
		}
	}
	rule := func(s rules.Set, p rules.Part, chain string, r rules.Rule) {
		if r.Kind == rules.Jump {
			r.Chain = chainName(s.Family, p.Table, r.Chain)
		}
		for _, text := range statements(s.Family, r) {
			tx.Add(&knftables.Rule{Chain: chain, Rule: text})
		}
	}
	for _, s := range sets {
		for _, p := range s.Parts {
			for _, c := range p.Chains {
				for _, r := range c.Rules {
					rule(s, p, chainName(s.Family, p.Table, c.Name), r)
				}
			}
		}
	}
	for _, h := range hooks {
		entries := entrances(h, sets)
		if len(entries) == 0 {
			continue
		}
		tx.Add(&knftables.Chain{Name: h.name(), Type: &h.kind, Hook: &h.at, Priority: &h.priority})
		for _, e := range entries {
			tx.Add(&knftables.Rule{Chain: h.name(), Rule: e})
		}
	}
}

// entrances writes the rules of a base chain: the jumps to the chains of both versions of IP.
func entrances(h hook, sets []rules.Set) []string {
	var first, out []string
	for _, s := range sets {
		for _, p := range s.Parts {
			for _, e := range p.Entries {
				if p.Table != h.table || e.Hook != h.from {
					continue
				}
				e.Chain = chainName(s.Family, p.Table, e.Chain)
				protocol := map[rules.Family]string{rules.IPv4: "meta nfproto ipv4 ", rules.IPv6: "meta nfproto ipv6 "}[s.Family]
				for _, text := range statements(s.Family, e.Rule) {
					if e.First {
						first = append(first, protocol+text)
					} else {
						out = append(out, protocol+text)
					}
				}
			}
		}
	}
	return slices.Concat(first, out)
}

// replace adds the replacement of the table by the sets to a transaction, whether or not the table exists.
func replace(tx *knftables.Transaction, sets []rules.Set) {
	tx.Add(&knftables.Table{}) // to delete a table that is not there would be an error
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	fill(tx, sets)
}

// Text writes the sets as the input of nft.
func Text(sets []rules.Set) string {
	tx := knftables.NewFake(knftables.InetFamily, Table).NewTransaction()
	replace(tx, sets)
	return tx.String()
}

// Present reports whether the program nft is installed.
func Present() bool {
	_, err := exec.LookPath("nft")
	return err == nil
}

// State is the installed state: the tables of captures, as nft lists them.
type State struct{ tables map[string]string }

// Read reads the installed tables.
func Read(ctx context.Context) (State, error) {
	if !Present() {
		return State{}, ErrMissing
	}
	list, err := run(ctx, "", "list", "tables", "inet")
	if err != nil {
		return State{}, err
	}
	s := State{tables: map[string]string{}}
	for line := range strings.Lines(list) {
		name := strings.TrimPrefix(strings.TrimSpace(line), "table inet ")
		if !slices.Contains(captures, name) {
			continue
		}
		if s.tables[name], err = run(ctx, "", "--stateless", "list", "table", "inet", name); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

// run runs nft, and returns its output.
func run(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(input)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// Captured reports whether there is a table of a capture.
func (s State) Captured() bool { return len(s.tables) > 0 }

// Apply replaces the installed tables by the sets.
func (s State) Apply(ctx context.Context, sets []rules.Set) error {
	nft, err := knftables.New(knftables.InetFamily, Table)
	if err != nil {
		return fmt.Errorf("nftables cannot be used: %w", err)
	}
	tx := nft.NewTransaction()
	replace(tx, sets)
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("writing the nftables table %s: %w", Table, err)
	}
	return s.remove(ctx, captures[1:])
}

// Clean removes the installed tables.
func (s State) Clean(ctx context.Context) error { return s.remove(ctx, captures) }

// remove removes installed tables.
func (s State) remove(ctx context.Context, names []string) error {
	var text strings.Builder
	for _, name := range names {
		if _, ok := s.tables[name]; ok {
			fmt.Fprintf(&text, "delete table inet %s\n", name)
		}
	}
	if text.Len() == 0 {
		return nil
	}
	_, err := run(ctx, text.String(), "-f", "-")
	return err
}

// Restore brings back the tables that the state holds.
func (s State) Restore(ctx context.Context) error {
	var text strings.Builder
	for _, name := range captures {
		fmt.Fprintf(&text, "add table inet %s\ndelete table inet %[1]s\n%s", name, s.tables[name])
	}
	_, err := run(ctx, text.String(), "-f", "-")
	return err
}
