package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PodConfig says what the containers of a pod share.
type PodConfig struct {
	Hostname    string
	HostNetwork bool
	HostIPC     bool
	// Settings are kernel settings of the pod's namespaces, such as net.core.somaxconn.
	Settings map[string]string
}

// Pod is what containers share: namespaces and a link.
type Pod struct {
	host      *Host
	config    PodConfig
	addresses []netip.Addr
	link      string // the machine's end of the link; empty on the machine's network
	shared    [3]int // descriptors of namespaces; -1 is the machine's own

	mu        sync.Mutex
	processes map[string]*Process
	waiting   sync.WaitGroup
}

// NewPod makes the namespaces and the link of a pod.
func (h *Host) NewPod(config PodConfig) (*Pod, error) {
	p := &Pod{host: h, config: config, shared: [3]int{-1, -1, -1}, processes: make(map[string]*Process)}
	if err := p.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("pod network: %w", err), p.Close())
	}
	return p, nil
}

func (p *Pod) open() error {
	if err := p.host.births.do(p.unshare); err != nil {
		return err
	}
	if p.config.HostNetwork {
		p.addresses = p.host.Addresses()
		return nil
	}
	var err error
	if p.addresses, err = p.host.addresses.Take(); err != nil {
		return err
	}
	return p.connect()
}

// unshare makes the namespaces on the thread for births, and goes back.
func (p *Pod) unshare() (err error) {
	flags := unix.CLONE_NEWUTS
	if !p.config.HostNetwork {
		flags |= unix.CLONE_NEWNET
	}
	if !p.config.HostIPC {
		flags |= unix.CLONE_NEWIPC
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	defer func() { err = errors.Join(err, p.host.back(flags)) }()
	for i, namespace := range namespaces {
		if flags&namespace.flag == 0 {
			continue
		}
		if p.shared[i], err = unix.Open("/proc/thread-self/ns/"+namespace.name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open %s namespace: %w", namespace.name, err)
		}
	}
	if err := unix.Sethostname([]byte(p.config.Hostname)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if p.config.HostNetwork {
		return nil
	}
	return p.tune()
}

// tune sets what a container runtime sets, and what the pod asks for.
func (p *Pod) tune() error {
	for _, setting := range [][2]string{
		{"ipv4/ip_unprivileged_port_start", "0"},
		{"ipv4/ping_group_range", "0 2147483647"},
		{"ipv4/conf/all/accept_redirects", "0"},
		{"ipv4/conf/default/accept_redirects", "0"},
		{"ipv6/conf/all/disable_ipv6", "0"},
		{"ipv6/conf/default/accept_dad", "0"},
		{"ipv6/conf/default/accept_ra", "0"},
		{"ipv6/conf/default/accept_redirects", "0"},
	} {
		if err := setKernel(setting[0], setting[1]); err != nil {
			return err
		}
	}
	for name, value := range p.config.Settings {
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("sysctl %s=%s: %w", name, value, err)
		}
	}
	return nil
}

// back returns the calling thread to the machine's namespaces.
func (h *Host) back(flags int) error {
	for i, namespace := range namespaces {
		if flags&namespace.flag == 0 {
			continue
		}
		if err := unix.Setns(h.own[i], namespace.flag); err != nil {
			return fmt.Errorf("back to the machine's %s namespace: %w", namespace.name, err)
		}
	}
	return nil
}

// connect gives the pod its link, addresses and routes. Addresses stand alone and everything goes by the bridge's
// address: so every packet between pods passes the machine's routing, and an address that is translated there on its way (the address of a Service)
// is translated back on its return.
func (p *Pod) connect() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = p.host.config.Bridge + "v" + strconv.FormatUint(uint64(p.host.names.Add(1)), 36)
	attributes.MasterIndex = p.host.bridge
	attributes.Flags = net.FlagUp
	veth := &netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(p.shared[0])}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %s: %w", attributes.Name, err)
	}
	p.link = attributes.Name
	if err := netlink.LinkSetHairpin(veth, true); err != nil {
		// Where the kernel filters bridged packets, a pod that reaches itself through a Service is sent back to its own port.
		return fmt.Errorf("hairpin mode of link %s: %w", attributes.Name, err)
	}
	return p.host.births.do(func() error {
		if err := unix.Setns(p.shared[0], unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the namespace: %w", err)
		}
		return errors.Join(p.configure(), p.host.back(unix.CLONE_NEWNET))
	})
}

// configure runs inside the pod's network namespace.
func (p *Pod) configure() error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer handle.Close()
	const loopback = 1 // always the first link of a namespace
	if err := handle.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: loopback}}); err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	link, err := handle.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0: %w", err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("eth0 up: %w", err)
	}
	for i, address := range p.addresses {
		alone := netip.PrefixFrom(address, address.BitLen())
		if err := handle.AddrAdd(link, linkAddress(alone)); err != nil {
			return fmt.Errorf("address %v: %w", address, err)
		}
		gateway := p.host.Addresses()[i]
		toGateway := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(gateway, gateway.BitLen())), Scope: netlink.SCOPE_LINK}
		everywhere := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice(), Dst: ipNet(netip.PrefixFrom(anywhere(gateway), 0))}
		for _, route := range []*netlink.Route{toGateway, everywhere} {
			if err := handle.RouteAdd(route); err != nil {
				return fmt.Errorf("route %v: %w", route, err)
			}
		}
	}
	return nil
}

func anywhere(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// Addresses are the pod's, one for each family.
func (p *Pod) Addresses() []netip.Addr { return p.addresses }

// Network is a path of the pod's network namespace, for other processes of the machine.
func (p *Pod) Network() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.shared[0]) }

// SetConnected cuts the pod from the network, or brings it back. The pod sees no sign of it but silence.
func (p *Pod) SetConnected(on bool) error {
	if p.link == "" {
		return errors.New("a pod on the machine's network cannot be cut off")
	}
	link, err := netlink.LinkByName(p.link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", p.link, err)
	}
	if !on {
		return netlink.LinkSetNoMaster(link)
	}
	if err := netlink.LinkSetMasterByIndex(link, p.host.bridge); err != nil {
		return err
	}
	return netlink.LinkSetHairpin(link, true)
}

// Dial connects to a port of the pod's own loopback, whatever family listens there.
func (p *Pod) Dial(ctx context.Context, port int) (net.Conn, error) {
	var last error
	for _, address := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		var conn net.Conn
		err := once(func() (err error) {
			if p.shared[0] >= 0 {
				if err := unix.Setns(p.shared[0], unix.CLONE_NEWNET); err != nil {
					return fmt.Errorf("enter the pod's network: %w", err)
				}
			}
			// A literal address is dialled on the calling goroutine, which is on a thread of its own here.
			dialer := net.Dialer{Timeout: 10 * time.Second}
			conn, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address, uint16(port)).String())
			return err
		})
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

// Close kills what runs in the pod, waits for its end and removes the link and the namespaces.
func (p *Pod) Close() error {
	p.mu.Lock()
	for _, process := range p.processes {
		process.kill()
	}
	p.mu.Unlock()
	p.waiting.Wait()
	var err error
	if p.link != "" {
		// The namespace takes its link along, but only when the kernel gets to it, and the address is free now.
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: p.link}}
		if index, found := netlink.LinkByName(p.link); found == nil {
			link.Index = index.Attrs().Index
			err = netlink.LinkDel(link)
		}
	}
	for i, fd := range p.shared {
		if fd >= 0 {
			_ = unix.Close(fd)
			p.shared[i] = -1
		}
	}
	if !p.config.HostNetwork {
		p.host.addresses.Give(p.addresses)
	}
	return err
}
