package lab

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/netns"
)

const (
	soOriginalDst   = 80
	ipv6Transparent = 75
	ipv6Freebind    = 78
)

// Ports that people listen on. The proxy's second set is for cases that move its ports.
var (
	proxyPorts = map[int]string{
		15001: "proxy outbound", 15006: "proxy inbound", 15008: "proxy tunnel", 15053: "proxy dns",
		16001: "proxy outbound", 16006: "proxy inbound", 16008: "proxy tunnel",
		15020: "proxy status", 15021: "proxy status", 15090: "proxy status",
	}
	appPorts   = []int{22, 53, 80, 443, 8080, 9090}
	appUDP     = []int{53, 8125}
	worldPorts = []int{22, 53, 80, 443, 3306, 8080, 9090, 15001, 15006, 15008, 15010, 15012, 15090}
	worldUDP   = []int{53, 123, 8125}
)

// party is the listeners of one user in one namespace. Function who names their role by port.
type party struct {
	in          netns.Namespace
	uid, gid    int
	tcp, udp    []int
	who         func(port int) string
	transparent bool
}

// socket is a listening socket of a party.
type socket struct {
	fd, port int
	udp      bool
}

// people starts all parties.
func (l *Lab) people() error {
	named := func(name string) func(int) string { return func(int) string { return name } }
	parties := []party{
		{in: l.world, tcp: worldPorts, udp: worldUDP, who: named("world")},
		{in: l.Pod, uid: 1000, gid: 1000, tcp: appPorts, udp: appUDP, who: named("app")},
	}
	if l.guest != netns.None {
		parties = append(parties, party{in: l.guest, tcp: []int{80, 8080}, who: named("guest")})
	}
	if !l.options.NoProxy {
		p := party{in: l.Pod, uid: l.options.UID, gid: l.options.GID, udp: []int{15053}, transparent: l.options.Transparent}
		for port := range proxyPorts {
			p.tcp = append(p.tcp, port)
		}
		p.who = func(port int) string { return proxyPorts[port] }
		parties = append(parties, p)
	}
	for _, p := range parties {
		if err := l.start(p); err != nil {
			return err
		}
	}
	return nil
}

// start lets a party listen until the lab is closed.
func (l *Lab) start(p party) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	l.stop = append(l.stop, pipe[1])
	ready := make(chan error, 1)
	go p.in.Do(p.uid, p.gid, func() {
		defer shut(pipe[0])
		sockets, err := p.listen()
		ready <- err
		if err == nil {
			p.serve(pipe[0], sockets)
		}
		for _, s := range sockets {
			shut(s.fd)
		}
	})
	return <-ready
}

// listen opens the sockets, for both versions of IP.
func (p party) listen() (sockets []socket, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for i, port := range append(append([]int{}, p.tcp...), p.udp...) {
			s := socket{port: port, udp: i >= len(p.tcp)}
			if s.fd, err = listen(family, port, s.udp, p.transparent); err != nil {
				return sockets, fmt.Errorf("%s listens on %d: %w", p.who(port), port, err)
			}
			sockets = append(sockets, s)
		}
	}
	return sockets, nil
}

// serve answers until the pipe is closed. It accepts on its own thread, so that answers belong to the role as well.
func (p party) serve(pipe int, sockets []socket) {
	polls := []unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN}}
	for _, s := range sockets {
		polls = append(polls, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
	for {
		if _, err := unix.Poll(polls, -1); err != nil && err != unix.EINTR || polls[0].Revents != 0 {
			return
		}
		for i, s := range sockets {
			switch {
			case polls[i+1].Revents == 0:
			case s.udp:
				answerUDP(s.fd, p.who(s.port), s.port)
			default:
				if fd, peer, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK); err == nil {
					go answerTCP(fd, p.who(s.port), toAddrPort(peer))
				}
			}
		}
	}
}

// shut closes a descriptor. There is nothing to do about one that cannot be closed.
func shut(fd int) { _ = unix.Close(fd) }

// set sets a socket option. Where it matters that the kernel has not done it, a probe meets something else.
func set(fd, level, option, value int) { _ = unix.SetsockoptInt(fd, level, option, value) }

func listen(family, port int, udp, transparent bool) (int, error) {
	kind := unix.SOCK_STREAM
	if udp {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	set(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	var addr unix.Sockaddr = &unix.SockaddrInet4{Port: port}
	level, about, through := unix.IPPROTO_IP, unix.IP_PKTINFO, unix.IP_TRANSPARENT
	if family == unix.AF_INET6 {
		addr = &unix.SockaddrInet6{Port: port}
		level, about, through = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, ipv6Transparent
		set(fd, level, unix.IPV6_V6ONLY, 1)
		set(fd, level, ipv6Freebind, 1)
	}
	if udp {
		set(fd, level, about, 1)
	}
	if transparent {
		set(fd, level, through, 1)
	}
	if err = unix.Bind(fd, addr); err == nil && !udp {
		err = unix.Listen(fd, 64)
	}
	if err != nil {
		shut(fd)
	}
	return fd, err
}
