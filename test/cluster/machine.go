package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/cluster/binaries"
)

// ErrUnable says that this machine cannot run nodes. Tests skip, and say why.
var ErrUnable = errors.New("this machine cannot run a test cluster with nodes")

// Able returns nil if this machine can run nodes, and otherwise an error that names the missing parts and wraps ErrUnable.
func Able(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root", ErrUnable)
	}
	if missing := binaries.Missing(); len(missing) > 0 {
		return fmt.Errorf("%w: missing %s (`make tools-cluster` as root installs them)", ErrUnable, strings.Join(missing, ", "))
	}
	probe := exec.CommandContext(ctx, "/bin/true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if err := probe.Run(); err != nil {
		return fmt.Errorf("%w: no namespaces: %w", ErrUnable, err)
	}
	if out, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: nft does not work: %w %s", ErrUnable, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// settings are what nodes need of the kernel. They are raised, never lowered, and stay: other clusters may count on them.
var settings = []struct {
	file  string
	value int
}{
	{"/proc/sys/net/ipv4/ip_forward", 1},
	{"/proc/sys/net/ipv6/conf/all/forwarding", 1},
	{"/proc/sys/fs/inotify/max_user_instances", 8192},
	{"/proc/sys/fs/inotify/max_user_watches", 524288},
}

func raise(dual bool) error {
	for _, s := range settings {
		if strings.Contains(s.file, "ipv6") && !dual {
			continue
		}
		text, err := os.ReadFile(s.file)
		if err != nil {
			return fmt.Errorf("reading a kernel setting: %w", err)
		}
		var have int
		if _, err := fmt.Sscan(string(text), &have); err != nil || have < s.value {
			if err := os.WriteFile(s.file, fmt.Append(nil, s.value), 0o644); err != nil {
				return fmt.Errorf("%w: raising %s to %d: %w", ErrUnable, s.file, s.value, err)
			}
		}
	}
	return nil
}

// hasIPv6 reports whether this machine has IPv6 at all.
func hasIPv6() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// plug makes the cluster's own device: the API server's and DNS server's address, and the way to service addresses, for
// which no packet ever leaves it: they are translated before.
func (s slot) plug(dual bool) error {
	b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.device()}}
	if err := netlink.LinkAdd(b); err != nil {
		return fmt.Errorf("%w: making the bridge %s: %w", ErrUnable, s.device(), err)
	}
	addresses := []netip.Prefix{netip.PrefixFrom(s.self(), 32)}
	routes := []netip.Prefix{s.services(), s.balancers()}
	if dual {
		addresses = append(addresses, netip.PrefixFrom(s.self6(), 128))
		routes = append(routes, s.services6(), s.balancers6())
	}
	for _, a := range addresses {
		// Without NODAD an IPv6 address cannot be used before the link has a carrier, which a bridge without ports never gets.
		if err := netlink.AddrAdd(b, &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", s.device(), a, err)
		}
	}
	if err := netlink.LinkSetUp(b); err != nil {
		return fmt.Errorf("setting %s up: %w", s.device(), err)
	}
	for _, r := range routes {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: b.Index, Dst: ipNet(r), Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("routing %s to %s: %w", r, s.device(), err)
		}
	}
	return nil
}

func (s slot) unplug() error {
	err := netlink.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.device()}})
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("removing the bridge %s: %w", s.device(), err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
