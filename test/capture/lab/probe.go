package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/netns"
)

// patience is how long a probe waits for an answer.
const patience = 2 * time.Second

// A probe is "WHO PROTO ADDRESS [OPTION…]".
//
// WHO is app, proxy, world or guest, with uid and gid after colons if they are not the usual ones (app:2000:3000).
// PROTO is tcp, udp, icmp, or stray: a segment that belongs to no connection and is not valid.
// Options: bind=ADDRESS and port=NUMBER, where it comes from; mark=NUMBER on its packets; count=N, so many times.
type probe struct {
	who         string
	uid, gid    int
	proto       string
	to          netip.AddrPort
	bind        netip.Addr
	port        int
	mark, count int
}

func parseProbe(words []string, proxyUID, proxyGID int) (p probe, err error) {
	if len(words) < 3 {
		return p, errors.New("a probe is WHO PROTO ADDRESS")
	}
	who := strings.Split(words[0], ":")
	p = probe{who: who[0], uid: 1000, gid: 1000, proto: words[1], count: 1}
	switch p.who {
	case "proxy":
		p.uid, p.gid = proxyUID, proxyGID
	case "app", "world", "guest":
	default:
		return p, fmt.Errorf("there is no sender %q", p.who)
	}
	if len(who) > 1 {
		if p.uid, err = strconv.Atoi(who[1]); err != nil {
			return p, err
		}
		p.gid = p.uid
	}
	if len(who) > 2 {
		if p.gid, err = strconv.Atoi(who[2]); err != nil {
			return p, err
		}
	}
	if p.proto == "icmp" {
		addr, err := netip.ParseAddr(words[2])
		if err != nil {
			return p, err
		}
		p.to = netip.AddrPortFrom(addr, 0)
	} else if p.to, err = netip.ParseAddrPort(words[2]); err != nil {
		return p, err
	}
	return p, p.set(words[3:])
}

// set reads the options.
func (p *probe) set(options []string) error {
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		var err error
		switch name {
		case "bind":
			p.bind, err = netip.ParseAddr(value)
		case "port":
			p.port, err = strconv.Atoi(value)
		case "mark":
			p.mark, err = strconv.Atoi(value)
		case "count":
			p.count, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("unknown option %q", option)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// from is the namespace that a probe starts from.
func (l *Lab) from(p probe) netns.Namespace {
	switch p.who {
	case "world":
		return l.world
	case "guest":
		return l.guest
	}
	return l.Pod
}

// Ask makes a probe, and says in words what comes of it.
func (l *Lab) Ask(words []string) (string, error) {
	p, err := parseProbe(words, l.options.UID, l.options.GID)
	if err != nil {
		return "", err
	}
	saw := ""
	for i := range p.count {
		var once string
		l.from(p).Do(p.uid, p.gid, func() { once = p.make() })
		if i == 0 {
			saw = once
		} else if saw != once {
			return "not always the same: " + saw + ", then " + once, nil
		}
	}
	return saw, nil
}

// Open makes a connection that stays, and asks who answers.
func (l *Lab) Open(id string, words []string) (string, error) {
	p, err := parseProbe(words, l.options.UID, l.options.GID)
	if err != nil {
		return "", err
	}
	fd, failed := -1, ""
	l.from(p).Do(p.uid, p.gid, func() { fd, failed = p.connect() })
	if failed != "" {
		return failed, nil
	}
	l.connections[id] = fd
	return exchange(fd), nil
}

// Use asks again who answers on a connection that stays.
func (l *Lab) Use(id string) string {
	fd, ok := l.connections[id]
	if !ok {
		return "never opened"
	}
	return exchange(fd)
}

// make makes the probe on the present thread.
func (p probe) make() string {
	switch p.proto {
	case "tcp":
		fd, failed := p.connect()
		if failed != "" {
			return failed
		}
		defer shut(fd)
		return exchange(fd)
	case "udp":
		return p.datagram()
	case "icmp":
		return p.ping()
	case "stray":
		return p.stray()
	}
	return "unknown protocol " + p.proto
}

func (p probe) family() int {
	if p.to.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func (p probe) socket(kind, proto int) (int, error) {
	fd, err := unix.Socket(p.family(), kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return -1, err
	}
	if p.mark != 0 {
		set(fd, unix.SOL_SOCKET, unix.SO_MARK, p.mark)
	}
	if p.port != 0 {
		set(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		if !p.bind.IsValid() {
			p.bind = netip.IPv4Unspecified()
			if p.family() == unix.AF_INET6 {
				p.bind = netip.IPv6Unspecified()
			}
		}
	}
	if p.bind.IsValid() {
		if p.bind.Is6() {
			set(fd, unix.IPPROTO_IPV6, ipv6Transparent, 1)
		} else {
			set(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
		}
		if err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(p.bind, uint16(p.port)))); err != nil {
			shut(fd)
			return -1, err
		}
	}
	return fd, nil
}

// wait polls for an event and reports whether it came in time.
func wait(fd int, events int16, deadline time.Time) bool {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		polls := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(polls, int(left.Milliseconds())+1)
		if n > 0 {
			return true
		}
		if err != nil && err != unix.EINTR {
			return false
		}
	}
}

func inWords(err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "reset"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EADDRNOTAVAIL):
		return "unreachable"
	case errors.Is(err, unix.EPERM):
		return "not permitted"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer"
	}
	return err.Error()
}

func (p probe) connect() (int, string) {
	fd, err := p.socket(unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, inWords(err)
	}
	err = unix.Connect(fd, sockaddr(p.to))
	if errors.Is(err, unix.EINPROGRESS) {
		if !wait(fd, unix.POLLOUT, time.Now().Add(patience)) {
			shut(fd)
			return -1, "no answer"
		}
		code, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		err = nil
		if code != 0 {
			err = unix.Errno(code)
		}
	}
	if err != nil {
		shut(fd)
		return -1, inWords(err)
	}
	return fd, ""
}

// exchange asks the other end of a connection who it is.
func exchange(fd int) string {
	if _, err := unix.Write(fd, []byte("who\n")); err != nil {
		return inWords(err)
	}
	if !wait(fd, unix.POLLIN, time.Now().Add(patience)) {
		return "connected, then silence"
	}
	buf := make([]byte, 256)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return inWords(err)
	}
	if n == 0 {
		return "connected, then closed"
	}
	return strings.TrimSpace(string(buf[:n]))
}

func (p probe) datagram() string {
	fd, err := p.socket(unix.SOCK_DGRAM, 0)
	if err != nil {
		return inWords(err)
	}
	defer shut(fd)
	if p.family() == unix.AF_INET { // hear of errors without being connected
		set(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	} else {
		set(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	}
	if err := unix.Sendto(fd, []byte("who\n"), 0, sockaddr(p.to)); err != nil {
		return inWords(err)
	}
	if !wait(fd, unix.POLLIN, time.Now().Add(patience)) {
		return "no answer"
	}
	buf := make([]byte, 256)
	n, from, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return inWords(err)
	}
	answer := strings.TrimSpace(string(buf[:n]))
	if got := toAddrPort(from); got != p.to {
		answer += ", answering as " + got.String()
	}
	return answer
}
