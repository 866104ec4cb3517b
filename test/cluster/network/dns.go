package network

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// ttl is short enough for tests that wait for a name to change, and what cluster DNS servers use.
const ttl = 5

// serveDNS answers over UDP and TCP until ctx ends.
func (n *Network) serveDNS(ctx context.Context) error {
	address := n.o.DNS.String()
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return fmt.Errorf("the DNS server: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		_ = packets.Close()
		return fmt.Errorf("the DNS server: %w", err)
	}
	servers := []*dns.Server{{PacketConn: packets, Handler: n}, {Listener: listener, Handler: n}}
	failed := make(chan error, len(servers))
	var running sync.WaitGroup
	var started sync.WaitGroup
	for _, s := range servers {
		started.Add(1)
		s.NotifyStartedFunc = started.Done
		running.Go(func() { failed <- s.ActivateAndServe() })
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("the DNS server has ended: %w", err)
	}
	started.Wait() // a server cannot be stopped before it runs
	for _, s := range servers {
		_ = s.Shutdown() // says no more than that it has ended
	}
	running.Wait()
	return err
}

// ServeDNS answers one question.
func (n *Network) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	answer := new(dns.Msg)
	answer.SetReply(q)
	answer.Authoritative = true
	if len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		answer.Rcode = dns.RcodeNotImplemented
	} else {
		n.answer(answer, q.Question[0])
	}
	size := dns.MinMsgSize
	if e := q.IsEdns0(); e != nil {
		answer.SetEdns0(4096, false)
		size = max(size, int(e.UDPSize()))
	}
	if w.RemoteAddr().Network() == "tcp" {
		size = dns.MaxMsgSize
	}
	answer.Truncate(size)
	// A client that has gone away waits for no answer.
	_ = w.WriteMsg(answer)
}

// answer fills in records, or what the absence of records means.
func (n *Network) answer(m *dns.Msg, q dns.Question) {
	name := strings.ToLower(q.Name)
	if strings.HasSuffix(name, ".in-addr.arpa.") || strings.HasSuffix(name, ".ip6.arpa.") {
		m.Answer = n.reverse(name, q)
	} else if found := n.find(name, 0); found != nil {
		m.Answer = found.records(q, n)
		m.Extra = found.extra(q)
	} else {
		// Also for names outside the cluster: nothing leaves this machine, so nothing else exists.
		m.Rcode = dns.RcodeNameError
	}
	if len(m.Answer) == 0 {
		if m.Rcode == dns.RcodeSuccess && strings.HasSuffix(name, ".arpa.") {
			m.Rcode = dns.RcodeNameError
		}
		m.Ns = []dns.RR{n.soa()}
	}
}

// soa sets how long resolvers may cache a negative answer.
func (n *Network) soa() dns.RR {
	zone := dns.Fqdn(n.o.Domain)
	return &dns.SOA{Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns: "ns.dns." + zone, Mbox: "hostmaster." + zone, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl}
}

// records are the records of the type that was asked for.
func (f *found) records(q dns.Question, n *Network) []dns.RR {
	header := func(kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: q.Name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
	}
	var all []dns.RR
	if f.alias != "" {
		all = append(all, &dns.CNAME{Hdr: header(dns.TypeCNAME), Target: f.alias})
		// A resolver need not ask again for a name that this server knows.
		if target := n.find(strings.ToLower(f.alias), f.depth+1); target != nil && q.Qtype != dns.TypeCNAME {
			all = append(all, target.records(dns.Question{Name: f.alias, Qtype: q.Qtype}, n)...)
		}
		return all
	}
	addresses := append(f.addresses[:0:0], f.addresses...)
	// Many clients take the first.
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	for _, a := range addresses {
		switch {
		case q.Qtype == dns.TypeA && a.Is4():
			all = append(all, &dns.A{Hdr: header(dns.TypeA), A: a.AsSlice()})
		case q.Qtype == dns.TypeAAAA && a.Is6():
			all = append(all, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: a.AsSlice()})
		}
	}
	if q.Qtype == dns.TypeSRV {
		for _, t := range f.targets {
			all = append(all, &dns.SRV{Hdr: header(dns.TypeSRV), Weight: uint16(100 / len(f.targets)), Port: t.port, Target: t.name})
		}
	}
	if q.Qtype == dns.TypeTXT && f.text != "" {
		all = append(all, &dns.TXT{Hdr: header(dns.TypeTXT), Txt: []string{f.text}})
	}
	return all
}

// extra are the addresses of an SRV answer's targets.
func (f *found) extra(q dns.Question) []dns.RR {
	if q.Qtype != dns.TypeSRV {
		return nil
	}
	var all []dns.RR
	for _, t := range f.targets {
		for _, a := range t.addresses {
			h := dns.RR_Header{Name: t.name, Class: dns.ClassINET, Ttl: ttl}
			if a.Is4() {
				h.Rrtype = dns.TypeA
				all = append(all, &dns.A{Hdr: h, A: a.AsSlice()})
			} else {
				h.Rrtype = dns.TypeAAAA
				all = append(all, &dns.AAAA{Hdr: h, AAAA: a.AsSlice()})
			}
		}
	}
	return all
}
