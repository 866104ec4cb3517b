// Package capture makes the connections of a workload go through its proxy: `istio-iptables` and `istio-clean-iptables`.
//
// There is one path: flags and environment become settings (package settings), settings become one typed set of rules for each version
// of IP (package rules), and one of three back ends installs it: iptables of either variant (package iptables) or nftables alone
// (package nftables). Package routes makes routes. The installed rules are read first: a capture with the wanted rules stays as it is, one
// with other iptables rules is replaced only on request, and a clean-up removes the rules of every back end.
//
// If a step fails, the steps before it are undone. The package starts no goroutines.
package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/capture/iptables"
	"github.com/pilotmesh/pilot/internal/agent/capture/nftables"
	"github.com/pilotmesh/pilot/internal/agent/capture/probe"
	"github.com/pilotmesh/pilot/internal/agent/capture/routes"
	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// ErrNotCaptured means that the validation has failed.
var ErrNotCaptured = errors.New("connections are not captured")

// errOther means that the rules of another capture are installed.
var errOther = errors.New("the rules of an earlier capture are in place and differ from these: use --reconcile to replace them, or remove them with istio-clean-iptables")

// ErrMissing means that rules which a capture needs are not in place.
var ErrMissing = errors.New("the rules of the capture are not in place, or have been changed")

// Capture is one run of a command.
type Capture struct {
	Flags    *settings.Flags
	Out      io.Writer // of a dry run
	Log      *slog.Logger
	UID      int
	LockFile string // "" for the usual one
}

// Apply captures connections, and checks that they are captured, as the flags say.
func (c Capture) Apply(ctx context.Context) error {
	return c.inside(func() error {
		host, err := readHost()
		if err != nil {
			return err
		}
		s, o, err := c.Flags.Resolve(host)
		if err != nil {
			return err
		}
		for _, r := range s.Remarks {
			c.Log.Warn("settings", "remark", r)
		}
		switch {
		case o.CleanupOnly:
			return c.clean(ctx, o, s.Mark, s.Table)
		case o.DryRun:
			return c.show(s, o)
		case !o.SkipApply:
			if err := c.apply(ctx, s, o); err != nil {
				return err
			}
		}
		if !o.Validate {
			return nil
		}
		if err := probe.Run(ctx, s, o.ProbePort, o.ProbeTimeout, uint32(c.UID)); err != nil {
			return fmt.Errorf("%w: %w", ErrNotCaptured, err)
		}
		c.Log.Info("connections are captured")
		return nil
	})
}

// Clean removes all that captures have made. The flags of the capture are accepted and need not be given.
func (c Capture) Clean(ctx context.Context) error {
	return c.inside(func() error {
		o, mark, table, err := c.Flags.CleanupOptions()
		if err != nil {
			return err
		}
		return c.clean(ctx, o, mark, table)
	})
}

// Check returns ErrMissing if the rules that the flags ask for are not in place. It changes nothing, and connects to nothing.
func (c Capture) Check(ctx context.Context) error {
	return c.inside(func() error {
		host, err := readHost()
		if err != nil {
			return err
		}
		s, o, err := c.Flags.Resolve(host)
		if err == nil {
			err = enough(o)
		}
		if err != nil {
			return err
		}
		p, err := c.read(ctx, o, s.IPv6)
		if err != nil {
			return err
		}
		b, err := p.choose(o)
		if err != nil {
			return err
		}
		if b.native && !p.native.Captured() || !b.native && len(p.steps(b, rules.Sets(s), false)) > 0 {
			return ErrMissing
		}
		return nil
	})
}

// show prints the changes that Apply would make.
func (c Capture) show(s settings.Settings, o settings.Options) error {
	var b strings.Builder
	sets := rules.Sets(s)
	if o.Native {
		fmt.Fprintf(&b, "# nft -f -\n%s", nftables.Text(sets))
	} else {
		for _, set := range sets {
			program := "iptables-restore"
			if set.Family == rules.IPv6 {
				program = "ip6tables-restore"
			}
			fmt.Fprintf(&b, "# %s --noflush\n%s", program, iptables.Text(set))
		}
	}
	for _, command := range routes.Commands(s) {
		fmt.Fprintln(&b, command)
	}
	_, err := io.WriteString(c.Out, b.String())
	return err
}

// apply installs the rules. After a failure, the steps before it are undone.
func (c Capture) apply(ctx context.Context, s settings.Settings, o settings.Options) (err error) {
	began := time.Now()
	if err := enough(o); err != nil {
		return err
	}
	p, err := c.read(ctx, o, s.IPv6)
	if err != nil {
		return err
	}
	sets := rules.Sets(s)
	b, err := p.choose(o)
	if err != nil {
		return err
	}
	if p.differs(b, sets) && !o.Reconcile && !o.Force {
		return errOther
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for i := range undo {
			if failed := undo[len(undo)-1-i](); failed != nil {
				err = fmt.Errorf("%w; and undoing the steps before failed: %w", err, failed)
			}
		}
	}()
	if err := routes.Apply(s); err != nil {
		return errors.Join(err, p.undoRoutes(s))
	}
	undo = append(undo, func() error { return p.undoRoutes(s) })
	steps := p.steps(b, sets, o.Force)
	for _, step := range steps {
		undo = append(undo, func() error { return step.undo(context.WithoutCancel(ctx)) })
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	c.Log.Info("capture", "backend", b.String(), "ipv6", s.IPv6, "changed", len(steps) > 0, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// clean removes all that captures have made with any back end. It continues after a failure, and returns all failures.
func (c Capture) clean(ctx context.Context, o settings.Options, mark uint32, table int) error {
	if o.DryRun {
		_, err := fmt.Fprintf(c.Out, "# removes the chains %s of iptables and ip6tables and the jumps to them, the table %s of nftables, routing rules and routes\n",
			strings.Join(rules.Names, ", "), nftables.Table)
		return err
	}
	p, err := c.read(ctx, o, false)
	if err != nil {
		return err
	}
	failed := []error{routes.Clean(mark, table)}
	for _, s := range p.iptables {
		failed = append(failed, s.Clean(ctx))
	}
	if p.native != nil {
		failed = append(failed, p.native.Clean(ctx))
	}
	return errors.Join(failed...)
}
