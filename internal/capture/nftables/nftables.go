// Package nftables applies rules with nftables alone, in one table of its own.
//
// The table is replaced as a whole by one transaction, for both versions of IP, so there is never half of it. A comment in the
// table has a digest of the rules, which tells a capture with the same rules from another one. The package keeps nothing in memory
// and starts no goroutines.
package nftables

import (
	"context"
	"crypto/sha256"
	encode "encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/pilotmesh/pilot/internal/capture/rules"
)

// Table is the name of the table.
const Table = "pilot-capture"

// digestMark is what the comment with the digest begins with.
const digestMark = "capture "

// ErrMissing means that there is no nft.
var ErrMissing = errors.New("nft is not installed, or not on PATH; without --native-nftables, capture uses iptables-restore")

// hook is a base chain. Its priority is one behind that of iptables, so that rules which others have made with either come first.
type hook struct {
	table    rules.Table
	from     rules.Hook
	kind     knftables.BaseChainType
	at       knftables.BaseChainHook
	priority knftables.BaseChainPriority
}

// hooks are the base chains. Packets whose mark a rule of the kind "route" changes find their way anew.
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
func fill(tx *knftables.Transaction, sets []rules.Set, comment string) {
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
	if comment != "" {
		tx.Add(&knftables.Chain{Name: "about"})
		tx.Add(&knftables.Rule{Chain: "about", Rule: "return", Comment: &comment})
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

// replace adds to a transaction that the table is what the sets say, whatever it was.
func replace(tx *knftables.Transaction, sets []rules.Set) {
	tx.Add(&knftables.Table{}) // to delete a table that is not there would be an error
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	fill(tx, sets, digestMark+digest(sets))
}

// Text writes the sets as the input of nft.
func Text(sets []rules.Set) string {
	tx := knftables.NewFake(knftables.InetFamily, Table).NewTransaction()
	replace(tx, sets)
	return tx.String()
}

// digest identifies rules.
func digest(sets []rules.Set) string {
	tx := knftables.NewFake(knftables.InetFamily, Table).NewTransaction()
	fill(tx, sets, "")
	sum := sha256.Sum256([]byte(tx.String()))
	return encode.EncodeToString(sum[:8])
}

// Present reports whether there is a program nft.
func Present() bool {
	_, err := exec.LookPath("nft")
	return err == nil
}

// State is what is in place.
type State struct {
	captured bool
	digest   string
	saved    string // the table, as nft lists it
}

// open finds out what nft can do on this machine. That takes it several calls, so it waits until there is something to do.
func open() (knftables.Interface, error) {
	nft, err := knftables.New(knftables.InetFamily, Table)
	if err != nil {
		return nil, fmt.Errorf("nftables cannot be used: %w", err)
	}
	return nft, nil
}

// Read reads what is in place.
func Read(ctx context.Context) (State, error) {
	if !Present() {
		return State{}, ErrMissing
	}
	tables, err := run(ctx, "", "list", "tables", "inet")
	if err != nil || !slices.Contains(strings.Split(tables, "\n"), "table inet "+Table) {
		return State{}, err
	}
	nft, err := open()
	if err != nil {
		return State{}, err
	}
	list, err := nft.ListRules(ctx, "")
	if err != nil && !knftables.IsNotFound(err) {
		return State{}, fmt.Errorf("reading the nftables table %s: %w", Table, err)
	}
	s := State{captured: true}
	if s.saved, err = run(ctx, "", "--stateless", "list", "table", "inet", Table); err != nil {
		return State{}, err
	}
	for _, r := range list {
		if r.Comment != nil {
			if after, ok := strings.CutPrefix(*r.Comment, digestMark); ok {
				s.digest = after
			}
		}
	}
	return s, nil
}

// run runs nft, and returns what it printed.
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
func (s State) Captured() bool { return s.captured }

// Equal reports whether the table was made of the same sets.
func (s State) Equal(sets []rules.Set) bool { return s.captured && s.digest == digest(sets) }

// Apply replaces what is in place by the sets.
func (s State) Apply(ctx context.Context, sets []rules.Set) error {
	nft, err := open()
	if err != nil {
		return err
	}
	tx := nft.NewTransaction()
	replace(tx, sets)
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("writing the nftables table %s: %w", Table, err)
	}
	return nil
}

// Clean removes what is in place.
func (s State) Clean(ctx context.Context) error {
	if !s.captured {
		return nil
	}
	return replaceBy(ctx, "")
}

// Restore brings back what was in place when the state was read.
func (s State) Restore(ctx context.Context) error { return replaceBy(ctx, s.saved) }

// replaceBy replaces the table, whether it is there or not, by what nft has listed.
func replaceBy(ctx context.Context, saved string) error {
	_, err := run(ctx, fmt.Sprintf("add table inet %s\ndelete table inet %[1]s\n%s", Table, saved), "-f", "-")
	return err
}
