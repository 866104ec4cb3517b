// Package probe finds out whether connections are captured: it listens on the ports of the proxy, connects to a port without a
// listener, and checks that the connection arrives.
//
// It has to run as the user of the proxy, in place of the proxy: connections of the proxy's user to its own host go to the inbound
// port. It starts no goroutines: a connection is established before the listener accepts it.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// soOriginalDst is the socket option with the destination that a connection had before a rule changed it, for both versions of IP.
const soOriginalDst = 80

// Times of one attempt: a connection on the loopback interface takes a fraction of a millisecond.
const (
	patience = 200 * time.Millisecond
	pause    = 250 * time.Millisecond
)

// Run repeats the probe until connections are captured, or the timeout is over, for each captured version of IP.
func Run(ctx context.Context, s settings.Settings, port uint16, timeout time.Duration, uid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, set := range rules.Sets(s) {
		if err := run(ctx, s, set.Family, port); err != nil {
			return fmt.Errorf("within %v: %w%s", timeout, err, advice(s, uid))
		}
	}
	return nil
}

// run repeats the probe for one version of IP.
func run(ctx context.Context, s settings.Settings, family rules.Family, port uint16) error {
	listeners, err := listen(ctx, family, s.OutboundPort, s.InboundPort)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := attempt(ctx, family, port, listeners)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// advice says why the probe cannot work for this user.
func advice(s settings.Settings, uid uint32) string {
	for _, ids := range s.UIDs {
		if ids.From <= uid && uid <= ids.To {
			return ""
		}
	}
	return fmt.Sprintf("; the probe ran as user %d, who is not the proxy, and whose calls to the own host are not captured: run it as user %d", uid, s.UIDs[0].From)
}

// addresses are the address where the probe listens, and the one that it calls: the latter has no listener, and rules redirect it to the former.
func addresses(f rules.Family) (listen, call netip.Addr) {
	if f == rules.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), f.Passthrough().Addr()
	}
	return netip.IPv6Loopback(), f.Passthrough().Addr()
}

func listen(ctx context.Context, f rules.Family, ports ...uint16) (list []*net.TCPListener, err error) {
	at, _ := addresses(f)
	reuse := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(err, failed)
	}}
	for _, port := range ports {
		l, e := reuse.Listen(ctx, "tcp", netip.AddrPortFrom(at, port).String())
		if e != nil {
			err = e
			continue
		}
		list = append(list, l.(*net.TCPListener))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("cannot listen in place of the proxy: %w", err)
	}
	return list, nil
}

func closeAll(list []*net.TCPListener) {
	for _, l := range list {
		_ = l.Close() // the process ends next
	}
}

// attempt connects once.
func attempt(ctx context.Context, f rules.Family, port uint16, listeners []*net.TCPListener) error {
	from, call := addresses(f)
	dialer := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(call.String(), strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("a connection to %v port %d was not captured: %w", call, port, err)
	}
	defer conn.Close()
	for _, l := range listeners {
		if err := l.SetDeadline(time.Now().Add(patience / 2)); err != nil {
			return err
		}
		got, err := l.AcceptTCP()
		if err != nil {
			continue // it went to the other one
		}
		to, err := original(got)
		_ = got.Close() // only its original destination is of use
		if err == nil && to == port {
			return nil
		}
	}
	return fmt.Errorf("a connection to %v port %d arrived elsewhere than at the proxy", call, port)
}

// original returns the port that a connection was made to.
func original(c *net.TCPConn) (port uint16, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	level := uintptr(unix.SOL_IP)
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok && a.IP.To4() == nil {
		level = unix.SOL_IPV6
	}
	failed := raw.Control(func(fd uintptr) {
		// IPv4 and IPv6 addresses have the port at the same offset, in network byte order.
		var address [unix.SizeofSockaddrInet6]byte
		size := uint32(len(address))
		if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, level, soOriginalDst, uintptr(unsafe.Pointer(&address[0])), uintptr(unsafe.Pointer(&size)), 0); e != 0 {
			err = e
			return
		}
		port = uint16(address[2])<<8 | uint16(address[3])
	})
	return port, errors.Join(err, failed)
}
