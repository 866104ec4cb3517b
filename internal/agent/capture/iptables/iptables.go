// Package iptables applies rules with iptables, of either variant: nft, which writes to nftables, and legacy.
//
// It reads the rules of captures with iptables-save, and writes the difference with iptables-restore, so that each table
// changes at once and the rules of other programs stay as they are. It keeps nothing in memory and starts no goroutines.
package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
)

// Variant is one of the two programs that are called iptables.
type Variant string

// The variants.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// lockWait is how long a program waits for other programs that change rules.
const lockWait = 30 * time.Second

// programs are the paths of the programs for one version of IP.
type programs struct{ save, restore string }

// Tool is one variant of iptables on this machine.
type Tool struct {
	Variant Variant
	Default bool // the plain name `iptables` means this variant
	of      map[rules.Family]programs
	env     []string
}

// families are the names of the programs by the version of IP.
var families = map[rules.Family]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}

// ErrMissing means that no variant of iptables is complete.
var ErrMissing = errors.New("iptables is not installed, or not on PATH: iptables-save and iptables-restore are needed")

// Find looks for the variants of iptables on PATH. It returns the variants with all their programs installed.
func Find(ctx context.Context, env []string) ([]Tool, error) {
	plain, plainErr := find("", rules.IPv4)
	usual := Variant("")
	if plainErr == nil {
		out, err := exec.CommandContext(ctx, plain.restore, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", plain.restore, err)
		}
		usual = variant(string(out))
	}
	var tools []Tool
	for _, v := range []Variant{NFT, Legacy} {
		t := Tool{Variant: v, Default: v == usual, of: map[rules.Family]programs{}, env: env}
		for family := range families {
			p, err := find("-"+string(v), family)
			if err != nil && v == usual {
				p, err = find("", family)
			}
			if err == nil {
				t.of[family] = p
			}
		}
		if _, ok := t.of[rules.IPv4]; ok {
			tools = append(tools, t)
		}
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("%w (%w)", ErrMissing, plainErr)
	}
	return tools, nil
}

// variant reads the output of `iptables --version`. Versions before 1.8 know only one variant, and do not name it.
func variant(version string) Variant {
	if strings.Contains(version, "nf_tables") {
		return NFT
	}
	return Legacy
}

func find(suffix string, family rules.Family) (p programs, err error) {
	if p.save, err = exec.LookPath(families[family] + suffix + "-save"); err != nil {
		return p, err
	}
	p.restore, err = exec.LookPath(families[family] + suffix + "-restore")
	return p, err
}

// State is the installed state for one version of IP.
type State struct {
	tool    Tool
	family  rules.Family
	present tables
	// Foreign reports whether there are rules of other programs.
	Foreign bool
}

// Captured reports whether there are rules of a capture.
func (s State) Captured() bool { return len(s.present) > 0 }

// Read reads the installed rules.
func (t Tool) Read(ctx context.Context, family rules.Family) (State, error) {
	p, ok := t.of[family]
	if !ok {
		return State{}, fmt.Errorf("%s-%s is not complete: %[1]s-save and %[1]s-restore are needed", families[family], t.Variant)
	}
	out, err := t.run(ctx, nil, p.save)
	if err != nil {
		return State{}, err
	}
	s := State{tool: t, family: family, present: parse(out)}
	own := 0
	for _, p := range s.present {
		own += len(p.jumps)
		for _, r := range p.rules {
			own += len(r)
		}
	}
	s.Foreign = strings.Count("\n"+out, "\n-A ") > own
	return s, nil
}

// Has reports whether there are programs for a version of IP.
func (t Tool) Has(family rules.Family) bool {
	_, ok := t.of[family]
	return ok
}

// Equal reports whether the installed rules are the set.
func (s State) Equal(set rules.Set) bool { return compare(s.present, wanted(set)) == equal }

// Reordered reports whether the installed rules are the rules of the set in another order.
func (s State) Reordered(set rules.Set) bool { return compare(s.present, wanted(set)) == reordered }

// Apply replaces the installed rules by the set. With force, it also writes tables that are equal.
func (s State) Apply(ctx context.Context, set rules.Set, force bool) error {
	return s.write(ctx, change(s.present, wanted(set), force))
}

// Clean removes the installed rules.
func (s State) Clean(ctx context.Context) error { return s.write(ctx, change(s.present, nil, false)) }

// Restore brings back the rules that the state holds.
func (s State) Restore(ctx context.Context) error {
	now, err := s.tool.Read(ctx, s.family)
	if err != nil {
		return err
	}
	return s.write(ctx, change(now.present, s.present, false))
}

func (s State) write(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	args := []string{"--noflush"}
	if s.tool.Variant == Legacy {
		args = append(args, "-w", strconv.Itoa(int(lockWait.Seconds())))
	}
	_, err := s.tool.run(ctx, strings.NewReader(text), s.tool.of[s.family].restore, args...)
	return err
}

// run runs a program, and returns its output. An error has the last lines of its standard error.
func (t Tool) run(ctx context.Context, input *strings.Reader, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	if input != nil {
		cmd.Stdin = input
	}
	cmd.Env = t.env
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(append([]string{program}, args...), " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}
