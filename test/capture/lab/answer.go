// Package lab is a network namespace in which the capture of traffic is tried: it sends connections, and says who receives them.
package lab

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func toAddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// original is where a connection was going: what the kernel remembers, or else the address that it came in on.
func original(fd int, peer netip.AddrPort) netip.AddrPort {
	var raw [28]byte
	size := uint32(len(raw))
	level := uintptr(unix.SOL_IP)
	if peer.Addr().Is6() {
		level = unix.SOL_IPV6
	}
	_, _, failed := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), level, soOriginalDst,
		uintptr(unsafe.Pointer(&raw[0])), uintptr(unsafe.Pointer(&size)), 0)
	if failed != 0 {
		local, _ := unix.Getsockname(fd) // nil prints as no address
		return toAddrPort(local)
	}
	port := binary.BigEndian.Uint16(raw[2:])
	if peer.Addr().Is6() {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:24])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), port)
}

// answerTCP answers every line of a caller with the role that it is talking to.
func answerTCP(fd int, who string, peer netip.AddrPort) {
	answer := fmt.Sprintf("%s for %s from %s\n", who, original(fd, peer), peer.Addr())
	file := os.NewFile(uintptr(fd), "conn")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return
	}
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// answerUDP sends the answer from the address that was asked.
func answerUDP(fd int, who string, port int) {
	buf, oob := make([]byte, 512), make([]byte, 128)
	_, n, _, from, err := unix.Recvmsg(fd, buf, oob, 0)
	if err != nil {
		return
	}
	at, back := netip.Addr{}, []byte(nil)
	messages, _ := unix.ParseSocketControlMessage(oob[:n]) // without one, the answer shows no address
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO:
			info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&m.Data[0]))
			at = netip.AddrFrom4(info.Addr)
			back = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: info.Addr})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO:
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&m.Data[0]))
			at = netip.AddrFrom16(info.Addr)
			back = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: info.Addr})
		}
	}
	answer := fmt.Sprintf("%s at %s from %s\n", who, netip.AddrPortFrom(at, uint16(port)), toAddrPort(from).Addr())
	_, _ = unix.SendmsgN(fd, []byte(answer), back, from, 0) // a caller that has gone hears nothing
}
