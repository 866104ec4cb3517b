package capture

import (
	"context"
	"errors"
	"slices"

	"github.com/pilotmesh/pilot/internal/agent/capture/iptables"
	"github.com/pilotmesh/pilot/internal/agent/capture/nftables"
	"github.com/pilotmesh/pilot/internal/agent/capture/routes"
	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// backend is a program that installs rules: nftables alone, or a variant of iptables.
type backend struct {
	native  bool
	variant iptables.Variant
}

func (b backend) String() string {
	if b.native {
		return "nftables"
	}
	return "iptables-" + string(b.variant)
}

// place is one variant of iptables for one version of IP.
type place struct {
	variant iptables.Variant
	family  rules.Family
}

// present is the installed state of all back ends of this machine.
type present struct {
	tools    []iptables.Tool
	missing  error // why there is no iptables
	iptables map[place]iptables.State
	native   *nftables.State // nil without nft
}

// enough checks that the program of the chosen back end is installed.
func enough(o settings.Options) error {
	if o.Native && !nftables.Present() {
		return nftables.ErrMissing
	}
	return nil
}

// read reads the installed state. With ipv6, IPv6 rules must be writable. If iptables may be legacy, it waits until no other program changes rules.
func (c Capture) read(ctx context.Context, o settings.Options, ipv6 bool) (*present, error) {
	lock := c.LockFile
	if lock == "" {
		lock = iptables.LockFile
	}
	p := &present{iptables: map[place]iptables.State{}}
	p.tools, p.missing = iptables.Find(ctx, toolEnvironment(o))
	if p.missing != nil && !errors.Is(p.missing, iptables.ErrMissing) {
		return nil, p.missing
	}
	if slices.ContainsFunc(p.tools, func(t iptables.Tool) bool { return t.Variant == iptables.Legacy && t.Default }) && !o.OwnLock {
		if err := iptables.AwaitLock(ctx, lock); err != nil {
			return nil, err
		}
	}
	for _, failed := range p.readTools(ctx, ipv6) {
		c.Log.Warn("a variant of iptables is left out", "error", failed)
	}
	if o.Native {
		p.missing = nil // rules that iptables cannot list here were not made by it
	}
	// Without --native-nftables, nft is used only to find the rules that an earlier capture has made with it.
	if nftables.Present() {
		s, err := nftables.Read(ctx)
		if err != nil && (o.Native || p.missing != nil) {
			return nil, err
		}
		if err == nil {
			p.native = &s
		}
	} else if p.missing != nil {
		return nil, p.missing
	}
	return p, nil
}

// readTools reads the installed rules of each variant of iptables. It drops variants that cannot be read, because the kernel does not
// support them, and returns the reasons. If no variant is left, the reasons go to missing instead.
func (p *present) readTools(ctx context.Context, ipv6 bool) (failed []error) {
	p.tools = slices.DeleteFunc(p.tools, func(t iptables.Tool) bool {
		states := map[rules.Family]iptables.State{}
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			s, err := t.Read(ctx, family)
			if err != nil && (family == rules.IPv4 || ipv6) {
				failed = append(failed, err)
				return true
			}
			if err == nil {
				states[family] = s
			}
		}
		for family, s := range states {
			p.iptables[place{t.Variant, family}] = s
		}
		return false
	})
	if len(p.tools) == 0 && p.missing == nil {
		p.missing, failed = errors.Join(failed...), nil
	}
	return failed
}

// choose decides which back end to use: the requested one, or else the back end of an earlier capture, or the one with rules of other
// programs, or the variant behind the plain name iptables.
func (p *present) choose(o settings.Options) (backend, error) {
	if o.Native {
		return backend{native: true}, nil
	}
	if p.missing != nil {
		return backend{}, p.missing
	}
	has := func(v iptables.Variant, what func(iptables.State) bool) bool {
		for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
			if s, ok := p.iptables[place{v, f}]; ok && what(s) {
				return true
			}
		}
		return false
	}
	var there []iptables.Variant
	for _, t := range p.tools {
		switch {
		case o.Binary != "" && string(t.Variant) != o.Binary:
		case t.Default:
			there = slices.Insert(there, 0, t.Variant)
		default:
			there = append(there, t.Variant)
		}
	}
	if len(there) == 0 {
		return backend{}, errors.New("--force-iptables-binary: iptables of the variant " + o.Binary + " is not installed, or not on PATH")
	}
	for _, what := range []func(iptables.State) bool{iptables.State.Captured, func(s iptables.State) bool { return s.Foreign }} {
		for _, v := range there {
			if has(v, what) {
				return backend{variant: v}, nil
			}
		}
	}
	return backend{variant: there[0]}, nil
}

// differs reports whether the back end has the rules of another capture than the wanted one. Rules of other back ends do not count:
// they are removed when the new rules are installed. Nor do rules of nftables alone: a transaction replaces them as a whole.
func (p *present) differs(b backend, sets []rules.Set) bool {
	for at, s := range p.iptables {
		if b.native || at.variant != b.variant || !s.Captured() {
			continue
		}
		i := slices.IndexFunc(sets, func(set rules.Set) bool { return set.Family == at.family })
		if i < 0 || !s.Equal(sets[i]) && !s.Reordered(sets[i]) {
			return true
		}
	}
	return false
}

// step is one change, and how to undo it.
type step struct {
	what     string
	do, undo func(context.Context) error
}

// steps are the changes that lead from the installed state to the wanted one. The new rules are added first, and the rules of other
// back ends removed afterwards, so that there is no moment without rules.
func (p *present) steps(b backend, sets []rules.Set, force bool) []step {
	var put, remove []step
	if b.native {
		put = append(put, step{b.String(), func(ctx context.Context) error { return p.native.Apply(ctx, sets) }, p.native.Restore})
	} else if p.native != nil && p.native.Captured() {
		remove = append(remove, step{"nftables", p.native.Clean, p.native.Restore})
	}
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		for _, variant := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
			s, ok := p.iptables[place{variant, family}]
			i := slices.IndexFunc(sets, func(set rules.Set) bool { return set.Family == family })
			what := "iptables-" + string(variant)
			switch {
			case !ok:
			case !b.native && variant == b.variant && i >= 0:
				if force || !s.Equal(sets[i]) {
					put = append(put, step{what, func(ctx context.Context) error { return s.Apply(ctx, sets[i], force) }, s.Restore})
				}
			case s.Captured():
				remove = append(remove, step{what, s.Clean, s.Restore})
			}
		}
	}
	return append(put, remove...)
}

// captured reports whether any back end has rules of a capture.
func (p *present) captured() bool {
	if p.native != nil && p.native.Captured() {
		return true
	}
	for _, s := range p.iptables {
		if s.Captured() {
			return true
		}
	}
	return false
}

// undoRoutes removes the routes of a capture that has failed. Routes of an earlier capture, whose rules are restored, stay.
func (p *present) undoRoutes(s settings.Settings) error {
	if p.captured() {
		return nil
	}
	return routes.Clean(s.Mark, s.Table)
}
