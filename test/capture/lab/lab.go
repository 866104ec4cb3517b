package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/netns"
)

// Addresses. The workload has one of each version of IP that it has; the world answers at its own and at any of its ranges.
const (
	podV4, podV6     = "10.10.0.2", "fd10::2"
	worldV4, worldV6 = "10.10.0.1", "fd10::1"
)

// ranges are the other addresses of the world.
var ranges = []string{
	"10.20.0.0/16", "10.96.0.0/16", "172.20.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
	"fd20::/64", "fd96::/112", "2001:db8::/32",
}

// Options say what a lab contains.
type Options struct {
	Stack       string   // v4, v6 or dual
	Links       []string // eth1, guest
	NoProxy     bool
	Transparent bool
	UID, GID    int // of the proxy
}

// Lab is the namespaces of one case and the listeners and connections in them.
type Lab struct {
	Pod, world, guest netns.Namespace
	options           Options
	stop              []int
	connections       map[string]int
}

// New makes a lab.
func New(o Options) (*Lab, error) {
	l := &Lab{Pod: netns.None, world: netns.None, guest: netns.None, options: o, connections: map[string]int{}}
	if err := l.make(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// make makes everything.
func (l *Lab) make() error {
	for _, n := range []*netns.Namespace{&l.Pod, &l.world} {
		var err error
		if *n, err = netns.New(); err != nil {
			return err
		}
		if err := n.Sysctl(quiet); err != nil {
			return err
		}
	}
	pod, world := l.plan()
	if slices.Contains(l.options.Links, "guest") {
		if err := l.addGuest(pod, world); err != nil {
			return err
		}
	}
	if err := l.Pod.IP(pod.String()); err != nil {
		return err
	}
	if err := l.world.IP(world.String()); err != nil {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	if l.guest != netns.None {
		if err := l.guest.IP("link set lo up\nlink set g0 up\naddr add 10.40.0.2/24 dev g0\nroute add default via 10.40.0.1\n"); err != nil {
			return err
		}
	}
	return l.people()
}

// settle waits until the kernel has made the routes of the IPv6 addresses, which it does some time after it has accepted them.
func (l *Lab) settle() error {
	addresses := map[netns.Namespace]string{l.world: worldV6}
	if l.options.Stack != "v4" {
		addresses[l.Pod] = podV6
	}
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n, address := range addresses {
		route := fmt.Sprintf("%x 80", netip.MustParseAddr(address).As16()) // a route to this address alone
		for there := false; !there; {
			n.Do(-1, -1, func() {
				routes, err := os.ReadFile("/proc/thread-self/net/ipv6_route")
				there = err == nil && strings.Contains(string(routes), route)
			})
			select {
			case <-deadline:
				return fmt.Errorf("the kernel makes no route for %s", address)
			case <-tick.C:
			}
		}
	}
	return nil
}

func say(b *strings.Builder, format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }

// plan is what ip does in the namespaces of the workload and of the world.
func (l *Lab) plan() (pod, world *strings.Builder) {
	pod, world = &strings.Builder{}, &strings.Builder{}
	say(pod, "link set lo up")
	say(pod, "link add eth0 type veth peer name w0 netns %s", l.world.Path())
	say(pod, "link set eth0 up")
	say(world, "link set lo up")
	say(world, "link set w0 up")
	say(world, "addr add %s/24 dev w0", worldV4)
	say(world, "addr add %s/64 dev w0 nodad", worldV6)
	for _, r := range ranges {
		say(world, "route add local %s dev lo", r)
	}
	if l.options.Stack != "v6" {
		say(pod, "addr add %s/24 dev eth0", podV4)
		say(pod, "route add default via %s", worldV4)
	}
	if l.options.Stack != "v4" {
		say(pod, "addr add %s/64 dev eth0 nodad", podV6)
		say(pod, "route add default via %s", worldV6)
	}
	if slices.Contains(l.options.Links, "eth1") {
		say(pod, "link add eth1 type veth peer name w1 netns %s", l.world.Path())
		say(pod, "link set eth1 up")
		say(pod, "addr add 10.30.0.2/24 dev eth1")
		say(pod, "route add 172.20.0.0/16 via 10.30.0.1 dev eth1")
		say(world, "link set w1 up")
		say(world, "addr add 10.30.0.1/24 dev w1")
	}
	return pod, world
}

// addGuest adds a virtual machine behind the workload.
func (l *Lab) addGuest(pod, world *strings.Builder) (err error) {
	if l.guest, err = netns.New(); err != nil {
		return err
	}
	say(pod, "link add tap0 type veth peer name g0 netns %s", l.guest.Path())
	say(pod, "link set tap0 up")
	say(pod, "addr add 10.40.0.1/24 dev tap0")
	say(world, "route add 10.40.0.0/24 via %s", podV4)
	return errors.Join(l.guest.Sysctl(quiet), l.Pod.Sysctl(map[string]string{"ipv4/ip_forward": "1"}))
}

// Close closes all listeners, connections and namespaces.
func (l *Lab) Close() {
	for _, fd := range l.stop {
		shut(fd)
	}
	for _, fd := range l.connections {
		shut(fd)
	}
	for _, n := range []netns.Namespace{l.Pod, l.world, l.guest} {
		n.Close()
	}
}
