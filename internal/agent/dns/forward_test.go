package dns

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testOptions(t testing.TB) Options {
	return Options{
		Host: "127.0.0.1", Domain: "shop.svc.cluster.local", Timeout: 3 * time.Second, Log: slog.New(slog.DiscardHandler),
		ResolvConf: write(t, "nameserver 192.0.2.1\n"),
	}
}

func write(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// serve runs a proxy until the test ends.
func serve(t testing.TB, p *Proxy) {
	t.Helper()
	ended := make(chan error)
	ctx, cancel := contextOf(t)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	await(t, "the proxy to answer", func() bool {
		c := dns.Client{Timeout: 100 * time.Millisecond}
		q := question("ready", dns.TypeA)
		q.Opcode = dns.OpcodeUpdate
		_, _, err := c.Exchange(q, p.own[0].String())
		return err == nil
	})
}

// query asks a proxy over a real socket.
func query(t testing.TB, p *Proxy, network string, q *dns.Msg) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: network, Timeout: 20 * time.Second, UDPSize: dns.MaxMsgSize}
	a, _, err := c.Exchange(q, p.own[0].String())
	if err != nil {
		t.Fatalf("%s over %s: %v", q.Question[0].Name, network, err)
	}
	return a
}

// upstreamServer serves a handler at an address of its own, over UDP and TCP.
func upstreamServer(t testing.TB, h dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{Listener: l, Handler: h}, {PacketConn: packets, Handler: h}} {
		started, ended := make(chan struct{}), make(chan error)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := errors.Join(s.Shutdown(), <-ended); err != nil {
				t.Error(err)
			}
		})
	}
	return netip.MustParseAddrPort(l.Addr().String())
}

func send(w dns.ResponseWriter, a *dns.Msg) { _ = w.WriteMsg(a) }

// nxdomain answers every question with NXDOMAIN.
func nxdomain(w dns.ResponseWriter, q *dns.Msg) {
	send(w, new(dns.Msg).SetRcode(q, dns.RcodeNameError))
}

// answering answers every question with an address.
func answering(address string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) { send(w, with(q, address)) }
}

func with(q *dns.Msg, addresses ...string) *dns.Msg {
	a := new(dns.Msg).SetReply(q)
	for _, address := range addresses {
		a.Answer = append(a.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: net.ParseIP(address)})
	}
	return a
}

// many are more addresses than fit into an answer over UDP.
func many() (list []string) {
	for i := range 200 {
		list = append(list, fmt.Sprintf("10.7.%d.%d", i/250, i%250+1))
	}
	return list
}

// deadEnd is an address without a server that answers.
func deadEnd(t testing.TB) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

// TestForward: a query for a name outside the mesh is passed on, over UDP and TCP, and the answer is for the question.
func TestForward(t *testing.T) {
	p := newProxy(t, tableOf(t, names()...), upstreamServer(t, answering("198.51.100.7")))
	for _, network := range []string{"udp", "tcp"} {
		if got := show(query(t, p, network, question("example.org", dns.TypeA))); got != "NOERROR 198.51.100.7" {
			t.Errorf("%s: %s", network, got)
		}
	}
	if got := p.metrics.upstream.Load(); got != 2 {
		t.Errorf("%d queries were passed on", got)
	}
	if text := p.Metrics(); !strings.Contains(text, "istio_agent_dns_upstream_requests_total 2\n") || !strings.Contains(text, "_seconds_count 2\n") || !strings.Contains(text, "pilot_agent_dns_names 11\n") {
		t.Error(text)
	}
}

// TestUnknownYet: before the control plane has sent any name, no answer is NXDOMAIN, and other names are resolved.
func TestUnknownYet(t *testing.T) {
	p := newProxy(t, nil, upstreamServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "known.example.org." {
			answering("198.51.100.7")(w, q)
			return
		}
		nxdomain(w, q)
	}))
	if p.Ready() == nil {
		t.Error("it is ready")
	}
	for name, want := range map[string]string{"pay.example.com": "SERVFAIL", "known.example.org": "NOERROR 198.51.100.7"} {
		if got := show(query(t, p, "udp", question(name, dns.TypeA))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestCutOff: an answer that does not fit is truncated, at the size that the client accepts, and is whole over TCP. A truncated answer of
// another server is requested again over TCP.
func TestCutOff(t *testing.T) {
	var overTCP atomic.Int32
	p := newProxy(t, tableOf(t, "many.example.com "+strings.Join(many(), " ")), upstreamServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
		a := with(q, many()...)
		if w.RemoteAddr().Network() == "udp" {
			a.Truncate(dns.MinMsgSize)
		} else {
			overTCP.Add(1)
		}
		send(w, a)
	}))
	for i, name := range []string{"many.example.com", "other.example.org"} {
		a := query(t, p, "tcp", question(name, dns.TypeA))
		if a.Truncated || len(a.Answer) != 200 {
			t.Errorf("%s over TCP: %d addresses", name, len(a.Answer))
		}
		for _, size := range []uint16{0, 600, 65535} {
			q := question(name, dns.TypeA)
			if size > 0 {
				q.SetEdns0(size, false)
			}
			a := query(t, p, "udp", q)
			a.Compress = true
			b, err := a.Pack()
			if limit := min(max(int(size), dns.MinMsgSize), maxUDP); err != nil || !a.Truncated || len(a.Answer) == 0 || len(b) > limit {
				t.Errorf("%s, client takes %d: %d addresses, %d bytes, cut off %v: %v", name, size, len(a.Answer), len(b), a.Truncated, err)
			}
			if (a.IsEdns0() != nil) != (size > 0) && i == 0 {
				t.Errorf("%s: EDNS %v for a client with %v", name, a.IsEdns0(), size)
			}
		}
	}
	if overTCP.Load() != 4 {
		t.Errorf("the other server was asked %d times over TCP", overTCP.Load())
	}
}

// TestDeadServer: another server is asked when one does not answer, and the one that answers is asked first from then on.
func TestDeadServer(t *testing.T) {
	p := newProxy(t, tableOf(t), deadEnd(t), upstreamServer(t, answering("198.51.100.7")))
	for i := range 3 {
		begin := time.Now()
		if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "NOERROR 198.51.100.7" {
			t.Fatal(got)
		}
		if took := time.Since(begin); i == 0 && took < patience {
			t.Errorf("the first server was waited for only %v", took)
		}
	}
	if n := p.metrics.upstream.Load(); n != 4 {
		t.Errorf("%d queries were passed on, want 2 for the first question and 1 for each other", n)
	}
}

// TestFailingServer: the next one is queried at once, and if all fail the client gets SERVFAIL.
func TestFailingServer(t *testing.T) {
	failing := func(w dns.ResponseWriter, q *dns.Msg) { send(w, new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)) }
	p := newProxy(t, tableOf(t), upstreamServer(t, failing), upstreamServer(t, answering("198.51.100.7")))
	if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "NOERROR 198.51.100.7" {
		t.Error(got)
	}
	p = newProxy(t, tableOf(t), upstreamServer(t, failing), upstreamServer(t, failing))
	if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "SERVFAIL" {
		t.Error(got)
	}
	o := testOptions(t)
	o.Timeout = 200 * time.Millisecond
	p, err := Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p.table.Store(tableOf(t, names()...))
	p.resolver.Store(&resolver{servers: []netip.AddrPort{deadEnd(t), deadEnd(t)}})
	serve(t, p)
	for name, want := range map[string]string{"example.org": "SERVFAIL", "pay.example.com": "NOERROR"} {
		if got := show(query(t, p, "udp", question(name, dns.TypeTXT))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if p.metrics.unanswered.Load() != 2 {
		t.Error("it is not counted")
	}
}

// TestParallel asks all servers at once.
func TestParallel(t *testing.T) {
	o := testOptions(t)
	o.Parallel = true
	p, err := Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p.table.Store(tableOf(t))
	p.resolver.Store(&resolver{servers: []netip.AddrPort{deadEnd(t), deadEnd(t), upstreamServer(t, answering("198.51.100.7"))}})
	serve(t, p)
	begin := time.Now()
	if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "NOERROR 198.51.100.7" || p.metrics.upstream.Load() != 3 {
		t.Errorf("%s after %v, %d queries", got, time.Since(begin), p.metrics.upstream.Load())
	}
}

// TestPoison: answers with another number, to another question, from another address, and messages that are no answers are ignored.
func TestPoison(t *testing.T) {
	ports := map[string]bool{}
	ids := map[uint16]bool{}
	p := newProxy(t, tableOf(t), upstreamServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
		ports[w.RemoteAddr().String()], ids[q.Id] = true, true
		bad := with(q, "203.0.113.66")
		bad.Id++
		send(w, bad)
		bad = with(question("bank.example.org", dns.TypeA), "203.0.113.66")
		bad.Id = q.Id
		send(w, bad)
		bad = with(q, "203.0.113.66")
		bad.Response = false
		send(w, bad)
		bad = with(q, "203.0.113.66")
		bad.Question[0].Qtype = dns.TypeAAAA
		send(w, bad)
		_, _ = w.Write([]byte("garbage that is no message of the DNS"))
		if other, err := net.Dial("udp", w.RemoteAddr().String()); err == nil {
			b, _ := with(q, "203.0.113.66").Pack()
			_, _ = other.Write(b)
			_ = other.Close()
		}
		send(w, with(q, "198.51.100.7"))
	}))
	for range 20 {
		if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "NOERROR 198.51.100.7" {
			t.Fatal(got)
		}
	}
	if len(ports) < 15 || len(ids) < 15 {
		t.Errorf("20 queries had %d ports and %d numbers", len(ports), len(ids))
	}
}

// TestLoop: a query that comes back is not passed on again: at once if it comes straight back, and soon if it comes back through another
// server.
func TestLoop(t *testing.T) {
	p := newProxy(t, tableOf(t))
	p.resolver.Store(&resolver{servers: p.own})
	if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "SERVFAIL" || p.metrics.upstream.Load() != 1 || p.metrics.looped.Load() != 1 {
		t.Errorf("%s, %d queries, %d loops", got, p.metrics.upstream.Load(), p.metrics.looped.Load())
	}
	around := upstreamServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
		c := dns.Client{Timeout: 5 * time.Second}
		a, _, err := c.Exchange(q, p.own[0].String())
		if err != nil {
			a = new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
		}
		send(w, a)
	})
	p.resolver.Store(&resolver{servers: []netip.AddrPort{around}})
	if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "SERVFAIL" {
		t.Error(got)
	}
	if n := p.metrics.upstream.Load(); n > maxForwarded+2 {
		t.Errorf("%d queries were passed on", n)
	}
	await(t, "all queries to end", func() bool { return len(p.forward.slots) == 0 })
	p.resolver.Store(&resolver{servers: []netip.AddrPort{upstreamServer(t, answering("198.51.100.7"))}})
	if got := show(query(t, p, "udp", question("example.org", dns.TypeA))); got != "NOERROR 198.51.100.7" {
		t.Errorf("afterwards: %s", got)
	}
}

// TestRefusedQueries: a message that is no query is refused.
func TestRefusedQueries(t *testing.T) {
	p := newProxy(t, tableOf(t, names()...))
	update := question("pay.example.com", dns.TypeA)
	update.Opcode = dns.OpcodeNotify
	newer := question("pay.example.com", dns.TypeA)
	newer.SetEdns0(1232, false)
	newer.IsEdns0().SetVersion(7)
	for want, q := range map[string]*dns.Msg{"NOTIMP": update, "BADVERS": newer} {
		if got := query(t, p, "udp", q); dns.RcodeToString[got.Rcode] != want && !(want == "BADVERS" && got.Rcode == dns.RcodeBadVers) {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// TestPortTaken names the port and the remedy.
func TestPortTaken(t *testing.T) {
	o := testOptions(t)
	o.Port = deadEnd(t).Port()
	if _, err := Listen(t.Context(), o); err == nil || !strings.Contains(err.Error(), "DNS_PROXY_ADDR") {
		t.Error(err)
	}
}

// TestBothFamilies: localhost is the loopback address of both IP versions, as far as the host has them.
func TestBothFamilies(t *testing.T) {
	o := testOptions(t)
	o.Host = "localhost"
	p, err := Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p.table.Store(tableOf(t, names()...))
	serve(t, p)
	for _, at := range p.Addresses() {
		for _, network := range []string{"udp", "tcp"} {
			c := dns.Client{Net: network}
			a, _, err := c.Exchange(question("pay.example.com", dns.TypeA), at.String())
			if err != nil || show(a) != "NOERROR 240.240.0.1" {
				t.Errorf("%v over %s: %v %v", at, network, a, err)
			}
		}
	}
	if len(p.Addresses()) == 0 || p.Addresses()[0].Addr() != netip.MustParseAddr("127.0.0.1") {
		t.Error(p.Addresses())
	}
}
