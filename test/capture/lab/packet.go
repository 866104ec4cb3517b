package lab

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ping sends an echo request.
func (p probe) ping() string {
	proto, echo, reply := unix.IPPROTO_ICMP, byte(8), byte(0)
	if p.family() == unix.AF_INET6 {
		proto, echo, reply = unix.IPPROTO_ICMPV6, 128, 129
	}
	fd, err := p.socket(unix.SOCK_RAW, proto)
	if err != nil {
		return inWords(err)
	}
	defer shut(fd)
	message := []byte{echo, 0, 0, 0, 0x77, 0x77, 0, 1, 'w', 'h', 'o', '?'}
	if proto == unix.IPPROTO_ICMP {
		binary.BigEndian.PutUint16(message[2:], checksum(message))
	}
	if err := unix.Sendto(fd, message, 0, sockaddr(p.to)); err != nil {
		return inWords(err)
	}
	deadline := time.Now().Add(patience)
	buf := make([]byte, 256)
	for wait(fd, unix.POLLIN, deadline) {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return inWords(err)
		}
		body := buf[:n]
		if proto == unix.IPPROTO_ICMP {
			body = body[int(body[0]&15)*4:]
		}
		if len(body) >= 6 && body[0] == reply && body[4] == 0x77 {
			if toAddrPort(from).Addr() != p.to.Addr() {
				return "echo as " + toAddrPort(from).Addr().String()
			}
			return "echo"
		}
	}
	return "no answer"
}

func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range parts {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// stray sends a bare FIN, which connection tracking calls invalid and a closed port answers with a reset.
func (p probe) stray() string {
	fd, err := p.socket(unix.SOCK_RAW, unix.IPPROTO_TCP)
	if err != nil {
		return inWords(err)
	}
	defer shut(fd)
	if err := unix.Connect(fd, sockaddr(netip.AddrPortFrom(p.to.Addr(), 0))); err != nil {
		return inWords(err)
	}
	const from = 45678
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment, from)
	binary.BigEndian.PutUint16(segment[2:], p.to.Port())
	binary.BigEndian.PutUint32(segment[4:], 1000)
	segment[12], segment[13] = 5<<4, 1
	binary.BigEndian.PutUint16(segment[14:], 1024)
	if p.family() == unix.AF_INET6 {
		set(fd, unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 16)
	} else {
		me, _ := unix.Getsockname(fd)
		a, b := toAddrPort(me).Addr().As4(), p.to.Addr().As4()
		binary.BigEndian.PutUint16(segment[16:], checksum(a[:], b[:], []byte{0, unix.IPPROTO_TCP, 0, 20}, segment))
	}
	if _, err := unix.Write(fd, segment); err != nil {
		return inWords(err)
	}
	deadline := time.Now().Add(patience)
	buf := make([]byte, 256)
	for wait(fd, unix.POLLIN, deadline) {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return inWords(err)
		}
		body := buf[:n]
		if p.family() == unix.AF_INET {
			body = body[int(body[0]&15)*4:]
		}
		if len(body) >= 14 && binary.BigEndian.Uint16(body[2:]) == from && body[13]&4 != 0 {
			return "reset"
		}
	}
	return "no answer"
}
