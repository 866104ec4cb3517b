package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrUnsupported is the reason of a machine that cannot run pods: no root, no namespaces, no overlay.
var ErrUnsupported = errors.New("this machine cannot run pods")

// Config is what a Host needs to know.
type Config struct {
	// Bridge is the name of the bridge, and the beginning of every other name on the machine.
	Bridge string
	// Prefixes are the pods' addresses; the first address of each is the bridge's.
	Prefixes []netip.Prefix
	// Stage is the path of the podrunner-init program.
	Stage string
	// Root is a directory for the trees of containers.
	Root string
}

// Host is the machine seen from one node.
type Host struct {
	config    Config
	addresses *Addresses
	bridge    int // link index
	stage     *os.File
	base      string
	groups    *groups
	names     atomic.Uint32

	births *thread // makes namespaces
	spawns *thread // starts processes; they die when it ends
	own    [3]int  // the machine's own namespaces, for going back
}

// namespaces are those a pod's containers share, with the flags that make them.
var namespaces = [3]struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"ipc", unix.CLONE_NEWIPC}}

// Supported says why the machine cannot run pods, or nil.
func Supported(root string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: podrunner needs root (user id is %d)", ErrUnsupported, os.Geteuid())
	}
	err := once(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("%w: no namespaces: unshare: %w", ErrUnsupported, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(root, "probe")
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	defer os.RemoveAll(dir)
	tree, err := Overlay("/", dir)
	if err != nil {
		return fmt.Errorf("%w: no overlay over / with its changes in %s (a directory on ext4, xfs or tmpfs is needed): %w", ErrUnsupported, root, err)
	}
	return tree.Close()
}

// Open makes the bridge. What an earlier life with the same name left is removed.
func Open(config Config) (*Host, error) {
	addresses, err := NewAddresses(config.Prefixes)
	if err != nil {
		return nil, err
	}
	h := &Host{config: config, addresses: addresses, own: [3]int{-1, -1, -1}}
	if err := h.open(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *Host) open() error {
	if err := errors.Join(removeRules(h.config.Bridge), removeLinks(h.config.Bridge)); err != nil {
		return err
	}
	var err error
	if h.groups, err = openGroups(h.config.Bridge); err != nil {
		return err
	}
	h.base = filepath.Join(h.config.Root, "root")
	if err := os.MkdirAll(h.base, 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if h.stage, err = os.OpenFile(h.config.Stage, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("stage program: %w", err)
	}
	for i, namespace := range namespaces {
		if h.own[i], err = unix.Open("/proc/thread-self/ns/"+namespace.name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open the machine's %s namespace: %w", namespace.name, err)
		}
	}
	h.births, h.spawns = newThread(), newThread()
	return h.addBridge()
}

func (h *Host) addBridge() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.HardwareAddr = h.config.Bridge, h.hardwareAddress()
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge %s: %w", h.config.Bridge, err)
	}
	h.bridge = bridge.Index
	for path, value := range map[string]string{
		"ipv4/conf/" + h.config.Bridge + "/send_redirects": "0", // all traffic between pods comes in and leaves by the bridge
		"ipv4/conf/all/send_redirects":                     "0", // the kernel obeys either
		"ipv4/conf/" + h.config.Bridge + "/route_localnet": "1",
		"ipv4/conf/" + h.config.Bridge + "/forwarding":     "1",
		"ipv6/conf/all/forwarding":                         "1", // IPv6 has no such switch for a link
		"ipv6/conf/" + h.config.Bridge + "/accept_dad":     "0", // the address is usable at once
		"ipv6/conf/" + h.config.Bridge + "/accept_ra":      "0",
	} {
		if err := setKernel(path, value); err != nil {
			return err
		}
	}
	for i, address := range h.addresses.Node() {
		prefix := netip.PrefixFrom(address, h.config.Prefixes[i].Bits())
		if err := netlink.AddrAdd(bridge, linkAddress(prefix)); err != nil {
			return fmt.Errorf("address %v of bridge %s: %w", prefix, h.config.Bridge, err)
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("bridge %s up: %w", h.config.Bridge, err)
	}
	return nil
}

// hardwareAddress is the address of the bridge on its link. Linux gives a bridge without a fixed address the lowest address of its ports, so the address
// changes when that pod ends. The other pods send to the former address until they resolve the gateway again, up to a minute later, and their packets
// are lost.
func (h *Host) hardwareAddress() net.HardwareAddr {
	node := h.addresses.Node()[0].As16()
	return net.HardwareAddr{0x02, 0x70, node[12], node[13], node[14], node[15]} // 0x02: administered by the machine, and of one link
}

// Addresses are the node's own.
func (h *Host) Addresses() []netip.Addr { return h.addresses.Node() }

// Close removes what Open made. All pods must have been closed.
func (h *Host) Close() error {
	for _, thread := range []*thread{h.births, h.spawns} {
		if thread != nil {
			thread.close()
		}
	}
	for _, fd := range h.own {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if h.stage != nil {
		h.stage.Close()
	}
	if h.groups != nil {
		h.groups.close()
	}
	return errors.Join(removeRules(h.config.Bridge), removeLinks(h.config.Bridge))
}

// removeLinks removes the bridge of that name, and what veths of its name are left.
func removeLinks(bridge string) error {
	links, err := whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		name := link.Attrs().Name
		rest, ours := strings.CutPrefix(name, bridge)
		if !ours || rest != "" && rest[0] != 'v' {
			continue
		}
		if err := netlink.LinkDel(link); err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove link %s: %w", name, err)
		}
	}
	return nil
}

// dumps is how often a list is asked for that changes while the kernel writes it down.
const dumps = 100

// whole asks for a list again if it has changed while the kernel wrote it down: other clusters start and end on this machine.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumps {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

func linkAddress(prefix netip.Prefix) *netlink.Addr {
	address := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	return address
}

// setKernel writes a setting of the network namespace that the calling thread is in.
func setKernel(path, value string) error {
	_, err := os.Stat("/proc/sys/net/ipv6")
	if errors.Is(err, os.ErrNotExist) && strings.HasPrefix(path, "ipv6/") {
		return nil // a machine without IPv6 has nothing to be set
	}
	if err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("kernel setting %s=%s: %w", path, value, err)
	}
	return nil
}

// SetForwarding lets pods talk to the world beyond the machine's own processes, or not: a node that is cut off still
// reaches its pods.
func (h *Host) SetForwarding(on bool) error {
	if err := removeRules(h.config.Bridge); err != nil || on {
		return err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rule := netlink.NewRule()
		rule.Family, rule.IifName, rule.Priority, rule.Type = family, h.config.Bridge, 100, unix.RTN_BLACKHOLE
		if err := netlink.RuleAdd(rule); err != nil {
			return fmt.Errorf("rule for %s: %w", h.config.Bridge, err)
		}
	}
	return nil
}

func removeRules(bridge string) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := whole(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		for _, rule := range rules {
			if rule.IifName != bridge {
				continue
			}
			rule.Family = family
			if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove rule for %s: %w", bridge, err)
			}
		}
	}
	return nil
}
