package capture

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// resolv is the file with the name servers.
const resolv = "/etc/resolv.conf"

// inside runs f in the network namespace that the flags name. Programs that f starts run in it as well.
func (c Capture) inside(f func() error) error {
	path := c.Flags.NetworkNamespace()
	if path == "" {
		return f()
	}
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("--network-namespace: %w", err)
	}
	defer own.Close()
	other, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--network-namespace: %w", err)
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("--network-namespace: entering %s: %w", path, err)
	}
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return fmt.Errorf("--network-namespace: leaving %s: %w", path, back) // the thread stays locked, and ends with the goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// readHost reads the facts about the host that settings depend on.
func readHost() (settings.Host, error) {
	h := settings.Host{Resolv: func() ([]byte, error) { return os.ReadFile(resolv) }, Port: lookupPort, User: lookupUser, Group: lookupGroup}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return h, fmt.Errorf("reading the addresses of this network namespace: %w", err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			h.Addresses = append(h.Addresses, p.Addr())
		}
	}
	return h, nil
}

func lookupPort(service string) (uint16, error) {
	// The library knows some services that /etc/services need not have, and never asks the network.
	port, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", service)
	if err != nil {
		return 0, fmt.Errorf("there is no service %q: give a number from 0 to 65535, or a name from /etc/services", service)
	}
	return uint16(port), nil
}

func lookupUser(name string) (uid, gid uint32, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, fmt.Errorf("there is no user %q: give a number or a name from /etc/passwd", name)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	group, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil || err2 != nil {
		return 0, 0, fmt.Errorf("the user %q has no numeric IDs", name)
	}
	return uint32(id), uint32(group), nil
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no group %q: give a number or a name from /etc/group", name)
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("the group %q has no numeric ID", name)
	}
	return uint32(id), nil
}

// toolEnvironment is the environment of iptables. On the file system of the host, all network namespaces of the
// host would share one lock and wait for each other without need: then the lock is on the network namespace itself.
func toolEnvironment(o settings.Options) []string {
	if !o.OwnLock {
		return nil
	}
	return []string{"XTABLES_LOCKFILE=/proc/self/ns/net"}
}
