package backend

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pilotmesh/pilot/test/kit/echo"
)

// ServeDNS answers the exam's names on addr, UDP and TCP, until the process ends.
func ServeDNS(addr string) error {
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	servers := echo.NewServers()
	servers.Run("DNS", func() error {
		buf := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return err
			}
			if out := answerDNS(buf[:n]); out != nil {
				_, _ = pc.WriteTo(out, from) // a client without an answer asks again
			}
		}
	})
	servers.TCP(l, func(c net.Conn) {
		for {
			var size uint16
			if binary.Read(c, binary.BigEndian, &size) != nil {
				return
			}
			q := make([]byte, size)
			if _, err := io.ReadFull(c, q); err != nil {
				return
			}
			out := answerDNS(q)
			if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
				return
			}
		}
	})
	return nil
}

// lookup is the exam's zone; ok is false for NXDOMAIN.
func lookup(name string) (addrs []netip.Addr, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if host, found := strings.CutSuffix(name, ".ip.exam"); found {
		a, err := netip.ParseAddr(strings.ReplaceAll(host, "-", "."))
		return []netip.Addr{a}, err == nil
	}
	var n int
	if c, _ := fmt.Sscanf(name, "multi-%d.exam", &n); c == 1 && n > 0 && n < 200 && name == fmt.Sprintf("multi-%d.exam", n) {
		for i := 1; i <= n; i++ {
			addrs = append(addrs, netip.AddrFrom4([4]byte{10, 77, 200, byte(i)}))
		}
		return addrs, true
	}
	return nil, false
}

func answerDNS(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true}, Questions: m.Questions}
	addrs, ok := lookup(q.Name.String())
	if !ok {
		out.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		if ok && q.Type == dnsmessage.TypeA {
			out.Answers = append(out.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 300},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	b, _ := out.Pack()
	return b
}
