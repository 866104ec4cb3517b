package dns

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

const (
	// timeToLive is how long clients may keep an answer, in seconds.
	timeToLive = 30
	// maxUDP is the size of the largest answer over UDP, in bytes, whatever the client takes. Larger ones would be sent in fragments.
	maxUDP = 1232
)

// handler answers the queries of one server.
type handler struct {
	ctx   context.Context //nolint:containedctx // of Run: the DNS library gives handlers none
	proxy *Proxy
	tcp   bool
}

// ServeDNS implements dns.Handler.
func (h handler) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	h.proxy.metrics.requests.Add(1)
	a := h.proxy.answer(h.ctx, q, addressOf(w.RemoteAddr()), h.tcp)
	if !h.tcp {
		a.Truncate(sizeFor(q))
	}
	_ = w.WriteMsg(a) // an error means that the client is gone
}

// addressOf is the address and port of a peer.
func addressOf(a net.Addr) netip.AddrPort {
	var at netip.AddrPort
	switch a := a.(type) {
	case *net.UDPAddr:
		at = a.AddrPort()
	case *net.TCPAddr:
		at = a.AddrPort()
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// sizeFor is the size of the largest answer to a query over UDP.
func sizeFor(q *dns.Msg) int {
	size := dns.MinMsgSize
	if o := q.IsEdns0(); o != nil {
		size = max(size, int(o.UDPSize()))
	}
	return min(size, maxUDP)
}

// answer returns the answer to a query of a client.
func (p *Proxy) answer(ctx context.Context, q *dns.Msg, from netip.AddrPort, tcp bool) *dns.Msg {
	switch {
	case q.Opcode != dns.OpcodeQuery:
		return failure(q, dns.RcodeNotImplemented)
	case len(q.Question) != 1:
		return failure(q, dns.RcodeFormatError)
	case q.IsEdns0() != nil && q.IsEdns0().Version() != 0:
		return failure(q, dns.RcodeBadVers)
	}
	if p.forward.isOwn(from) {
		if p.metrics.looped.Add(1) == 1 {
			p.o.Log.Error("a DNS query of the agent came back to it; exclude the agent's user from the capture of DNS, and check the servers in resolv.conf",
				"servers", p.resolver.Load().servers)
		}
		return failure(q, dns.RcodeServerFailure)
	}
	return p.resolve(ctx, q, tcp)
}

// resolve answers a question from the table, or else asks other servers.
func (p *Proxy) resolve(ctx context.Context, q *dns.Msg, tcp bool) *dns.Msg {
	question, servers := q.Question[0], p.resolver.Load()
	table := p.table.Load()
	known := false
	if table != nil && question.Qclass == dns.ClassINET {
		n, alias := table.find(canonical(question.Name), domains{p.o.Domain, servers.search})
		known = n != nil
		if known && (question.Qtype == dns.TypeA || question.Qtype == dns.TypeAAAA) {
			p.metrics.answered.Add(1)
			return reply(q, n, alias)
		}
	}
	a, err := p.forward.ask(ctx, q, servers.servers, tcp)
	if err != nil {
		p.metrics.unanswered.Add(1)
		p.o.Log.Debug("no server has answered a DNS query", "name", question.Name, "error", err)
		if known {
			return reply(q, &name{}, "") // the name exists, and has no records of this type that the agent knows
		}
		return failure(q, dns.RcodeServerFailure)
	}
	if a.Rcode == dns.RcodeNameError {
		switch {
		case known: // a client may take it that the name has no addresses either
			return reply(q, &name{}, "")
		case table == nil: // it may be a name of the mesh
			return failure(q, dns.RcodeServerFailure)
		}
	}
	return a
}

// reply is the answer with the addresses of a name; without any, if it has none of the requested type. If the client has appended a domain
// of its search list to the name, alias is the name without it.
func reply(q *dns.Msg, n *name, alias string) *dns.Msg {
	a := new(dns.Msg).SetReply(q)
	a.Authoritative, a.RecursionAvailable = true, true
	question := q.Question[0]
	head := dns.RR_Header{Name: question.Name, Class: dns.ClassINET, Ttl: timeToLive, Rrtype: question.Qtype}
	list := n.four
	if question.Qtype == dns.TypeAAAA {
		list = n.six
	}
	if alias != "" && len(list) > 0 {
		a.Answer = append(a.Answer, &dns.CNAME{
			Hdr: dns.RR_Header{Name: question.Name, Class: dns.ClassINET, Ttl: timeToLive, Rrtype: dns.TypeCNAME}, Target: dns.Fqdn(alias),
		})
		head.Name = dns.Fqdn(alias)
	}
	first := len(a.Answer)
	for _, ip := range list {
		switch question.Qtype {
		case dns.TypeA:
			a.Answer = append(a.Answer, &dns.A{Hdr: head, A: ip.AsSlice()})
		case dns.TypeAAAA:
			a.Answer = append(a.Answer, &dns.AAAA{Hdr: head, AAAA: ip.AsSlice()})
		}
	}
	records := a.Answer[first:]
	rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	return withOptions(a, q)
}

// failure is an answer without records.
func failure(q *dns.Msg, code int) *dns.Msg {
	a := new(dns.Msg).SetRcode(q, code)
	a.RecursionAvailable = true
	return withOptions(a, q)
}

// withOptions adds the EDNS record that a client with EDNS expects.
func withOptions(a, q *dns.Msg) *dns.Msg {
	if o := q.IsEdns0(); o != nil {
		a.SetEdns0(maxUDP, o.Do())
	}
	return a
}
