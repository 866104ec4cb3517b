package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// slots is how many clusters one machine runs at a time. All that is derived from a slot has room for two digits.
const slots = 60

// slot distinguishes one cluster of a machine from another. It is held by an abstract socket, which the kernel frees
// when the last process that has it open is gone: the cluster's, or its reaper's.
type slot struct {
	number int
	hold   *os.File
}

// claim takes the first slot that is free and whose addresses are unused on this machine.
func claim() (slot, error) {
	used, err := usedNetworks()
	if err != nil {
		return slot{}, err
	}
	for n := range slots {
		l, err := net.Listen("unix", fmt.Sprintf("@pilot-cluster-%02d", n))
		if err != nil {
			continue // another cluster has it
		}
		s := slot{number: n}
		if overlaps(s.network(), used) {
			l.Close()
			continue
		}
		hold, err := l.(*net.UnixListener).File()
		l.Close() // the file keeps the name
		if err != nil {
			return slot{}, fmt.Errorf("holding slot %d: %w", n, err)
		}
		s.hold = hold
		return s, nil
	}
	return slot{}, fmt.Errorf("all %d slots for clusters are taken, or their networks (10.64.0.0/16 to 10.%d.0.0/16) are in use: end other clusters (`ss -xl | grep pilot-cluster`)", slots, 63+slots)
}

// usedNetworks are the networks of this machine's interfaces, except those left by an earlier cluster, which Start removes.
func usedNetworks() ([]netip.Prefix, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	var used []netip.Prefix
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil || ours(i.Name) {
			continue // the interface is gone, or will be removed
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				used = append(used, p.Masked())
			}
		}
	}
	return used, nil
}

func overlaps(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if u.Overlaps(p) {
			return true
		}
	}
	return false
}

func (s slot) release() error {
	if s.hold == nil {
		return nil
	}
	if err := s.hold.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("releasing slot %d: %w", s.number, err)
	}
	return nil
}

// v4 and v6 are addresses of the slot's networks.
func (s slot) v4(third, fourth int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(64 + s.number), byte(third), byte(fourth)})
}

func (s slot) v6(fourth, last uint16) netip.Addr {
	a := [16]byte{0xfd, 0x70, 0, 0x6d, 0, byte(s.number)}
	a[6], a[7] = byte(fourth>>8), byte(fourth)
	a[14], a[15] = byte(last>>8), byte(last)
	return netip.AddrFrom16(a)
}

func (s slot) network() netip.Prefix  { return netip.PrefixFrom(s.v4(0, 0), 16) }
func (s slot) services() netip.Prefix { return netip.PrefixFrom(s.v4(128, 0), 18) }
func (s slot) services6() netip.Prefix {
	return netip.PrefixFrom(s.v6(0x8000, 0), 112)
}
func (s slot) balancers() netip.Prefix  { return netip.PrefixFrom(s.v4(192, 0), 20) }
func (s slot) balancers6() netip.Prefix { return netip.PrefixFrom(s.v6(0xc000, 0), 112) }
func (s slot) dns() netip.Addr          { return s.v4(128, 10) }

// self and self6 are the addresses where pods reach the API server and the DNS server, which are not pods.
func (s slot) self() netip.Addr  { return s.v4(255, 1) }
func (s slot) self6() netip.Addr { return s.v6(0xffff, 1) }

// private is where parts of the control plane find each other; nothing outside this machine's root namespace reaches it.
func (s slot) private() netip.Addr {
	return netip.AddrFrom4([4]byte{127, 77, byte(s.number), 1})
}

// pods are the addresses of a node's pods; the first of each is the node's own.
func (s slot) pods(node int) netip.Prefix  { return netip.PrefixFrom(s.v4(4*node, 0), 22) }
func (s slot) pods6(node int) netip.Prefix { return netip.PrefixFrom(s.v6(uint16(node), 0), 64) }

// maxNodes is what fits below the services' addresses.
const maxNodes = 30

func (s slot) device() string         { return fmt.Sprintf("pk%02d", s.number) }
func (s slot) bridge(node int) string { return fmt.Sprintf("%sn%d", s.device(), node) }
func (s slot) table() string          { return fmt.Sprintf("pilot-%02d", s.number) }

// ours reports whether a device belongs to a test cluster.
func ours(device string) bool {
	return len(device) >= 4 && device[:2] == "pk" && device[2] >= '0' && device[2] <= '9' && device[3] >= '0' && device[3] <= '9'
}
