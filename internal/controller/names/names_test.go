package names

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/source"
)

// zone is a DNS server whose records a test changes.
type zone struct {
	mu      sync.Mutex
	records []string // in the format of zone files
	rcode   int
	asked   int
	// large makes answers over UDP truncated.
	large bool
	at    string
}

func serveZone(t *testing.T) *zone {
	t.Helper()
	z := &zone{}
	packets, streams := samePort(t)
	z.at = packets.LocalAddr().String()
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: z}, {Listener: streams, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return z
}

// samePort listens at a port that is free for UDP and TCP.
func samePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var failures error
	for range 50 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		streams, err := net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, streams
		}
		failures = errors.Join(failures, err, packets.Close()) // another program has the port for TCP
	}
	t.Fatal(failures)
	return nil, nil
}

// set replaces the records and the code of all answers.
func (z *zone) set(rcode int, records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records, z.rcode = records, rcode
}

func (z *zone) questions() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked
}

// ServeDNS answers with all records of the type that was asked for, and all aliases.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	m := new(dns.Msg).SetRcode(q, z.rcode)
	if _, packets := w.RemoteAddr().(*net.UDPAddr); packets && z.large {
		m.Truncated = true
		_ = w.WriteMsg(m)
		return
	}
	for _, text := range z.records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		if t := rr.Header().Rrtype; t == q.Question[0].Qtype || t == dns.TypeCNAME {
			m.Answer = append(m.Answer, rr)
		}
	}
	_ = w.WriteMsg(m)
}

func (z *zone) client() *Client {
	return &Client{Servers: func() ([]string, error) { return []string{z.at}, nil }}
}

// TestLookUp checks which addresses of an answer count.
func TestLookUp(t *testing.T) {
	for _, c := range []struct {
		name    string
		rcode   int
		records []string
		large   bool
		want    string
		ttl     time.Duration
		failure string
	}{
		{"both families", 0, []string{"gw.test. 60 A 192.0.2.2", "gw.test. 50 A 192.0.2.1", "gw.test. 70 AAAA 2001:db8::1"}, false, "192.0.2.1 192.0.2.2 2001:db8::1", 50 * time.Second, ""},
		{"one family", 0, []string{"gw.test. 60 AAAA 2001:db8::1"}, false, "2001:db8::1", time.Minute, ""},
		{"alias with the shorter time", 0, []string{"GW.test. 20 CNAME lb.test.", "lb.test. 60 A 192.0.2.1"}, false, "192.0.2.1", 20 * time.Second, ""},
		{"circle of aliases", 0, []string{"gw.test. 20 CNAME lb.test.", "lb.test. 20 CNAME gw.test."}, false, "", 0, "no address"},
		{"addresses of another name", 0, []string{"other.test. 60 A 192.0.2.1"}, false, "", 0, "no address"},
		{"no such name", dns.RcodeNameError, nil, false, "", 0, "no address"},
		{"failing server", dns.RcodeServerFailure, nil, false, "", 0, "answers SERVFAIL"},
		{"answer over TCP", 0, []string{"gw.test. 60 A 192.0.2.1"}, true, "192.0.2.1", time.Minute, ""},
		{"blocked addresses only", 0, []string{"gw.test. 60 A 127.0.0.1", "gw.test. 60 A 169.254.169.254", "gw.test. 60 AAAA ::1"}, false, "", 0, "loopback, link-local"},
		{"a blocked address", 0, []string{"gw.test. 60 A 127.0.0.1", "gw.test. 60 A 192.0.2.1"}, false, "192.0.2.1", time.Minute, ""},
		{"repeated address", 0, []string{"gw.test. 60 A 192.0.2.1", "gw.test. 60 A 192.0.2.1"}, false, "192.0.2.1", time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := serveZone(t)
			z.large = c.large
			z.set(c.rcode, c.records...)
			r := z.client().lookUp(t.Context(), "gw.test")
			e := &name{kept: map[family][]netip.Addr{}}
			for f, a := range r.of {
				e.kept[f] = a.addresses
			}
			ttl, failure := r.judge()
			if got := strings.Join(e.addresses().Items(), " "); got != c.want || ttl != c.ttl {
				t.Errorf("%q for %v, want %q for %v", got, ttl, c.want, c.ttl)
			}
			if (failure == nil) != (c.failure == "") || failure != nil && !strings.Contains(failure.Error(), c.failure) {
				t.Errorf("%v, want %q", failure, c.failure)
			}
		})
	}
}

// TestNextServer: a server that does not answer costs nothing but time, if the next one does.
func TestNextServer(t *testing.T) {
	z := serveZone(t)
	z.set(0, "gw.test. 60 A 192.0.2.1")
	bad := serveZone(t)
	bad.set(dns.RcodeRefused)
	c := &Client{Servers: func() ([]string, error) { return []string{bad.at, z.at}, nil }}
	if a, err := c.ask(t.Context(), "gw.test", family(dns.TypeA)); err != nil || len(a.addresses) != 1 {
		t.Errorf("%v, %v", a, err)
	}
}

// world is a mesh whose rows the resolver changes. It is not a loop: commits happen when the test asks.
type world struct {
	*meshtest.World
	mu sync.Mutex
}

// wanted returns the names that the mesh wants.
func (w *world) wanted() (hosts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.Queries.Services.GatewayNames(w.Graph.Naive()) {
		hosts = append(hosts, n.Host)
	}
	return hosts
}

// Apply implements source.Sink.
func (w *world) Apply(b source.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, b) })
}

// await waits until the gateways of the network, the problems and the resolved names are the expected ones.
func (w *world) await(t *testing.T, gateways string, names int, problems ...string) {
	t.Helper()
	state := func() (got string, found []string, n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for range w.Tables.Networks.Resolved.All() {
			n++
		}
		return fmt.Sprint(w.Queries.Services.Gateways(w.Graph.Naive(), "north", "")), w.Problems(), n
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		got, found, n := state()
		ok := got == gateways && n == names && len(found) == len(problems)
		for i := range problems {
			ok = ok && strings.Contains(found[i], problems[i])
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %s, %d names and %q, want %s, %d and %q", got, n, found, gateways, names, problems)
		}
		<-time.After(5 * time.Millisecond)
	}
}

const networks = `networks:
  north:
    endpoints: [{fromRegistry: north}]
    gateways: [{address: gw.test, port: 15443}]
`

// TestResolver follows a name through its life: answers, new answers when the time to live is over, a failing server, and an edit.
func TestResolver(t *testing.T) {
	z := serveZone(t)
	z.set(0, "gw.test. 1 A 192.0.2.1")
	w := &world{World: meshtest.New(t)}
	w.ConfigureNetworks(networks)
	changed := make(chan struct{}, 1)
	v := &Resolver{Sink: w, Client: z.client(), Pace: 2 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	v.prepare()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		v.lookups.Run(ctx, changed, func(context.Context) { v.follow(w.wanted()) }, nil)
	})
	defer running.Wait()
	defer cancel()
	w.await(t, "[{ 192.0.2.1 15443}]", 1)
	z.set(0, "gw.test. 1 A 192.0.2.2", "gw.test. 1 AAAA 2001:db8::2")
	w.await(t, "[{ 192.0.2.2 15443} { 2001:db8::2 15443}]", 1)
	z.set(dns.RcodeServerFailure)
	w.await(t, "[{ 192.0.2.2 15443} { 2001:db8::2 15443}]", 1, "answers SERVFAIL; the addresses of the last good answer stay in use (2)")
	z.set(dns.RcodeNameError)
	w.await(t, "[{ 192.0.2.2 15443} { 2001:db8::2 15443}]", 1, "the DNS has no address of it; the addresses of the last good answer")
	z.set(0, "gw.test. 1 A 192.0.2.3")
	w.await(t, "[{ 192.0.2.3 15443}]", 1)
	w.mu.Lock()
	w.ConfigureNetworks("networks: {}\n")
	w.mu.Unlock()
	changed <- struct{}{}
	w.await(t, "[]", 0)
}

// TestTimeToLive: a name is not asked for before the time of its answer is over.
func TestTimeToLive(t *testing.T) {
	z := serveZone(t)
	z.set(0, "gw.test. 3600 A 192.0.2.1")
	w := &world{World: meshtest.New(t)}
	v := &Resolver{Sink: w, Client: z.client(), Log: slog.New(slog.DiscardHandler)}
	v.prepare()
	v.follow([]string{"gw.test"})
	if wait := v.done("gw.test", v.lookups.Wanted["gw.test"], v.Client.lookUp(t.Context(), "gw.test"), nil); wait != mostTTL {
		t.Errorf("the next lookup is in %v", wait)
	}
}

// TestExcess: names beyond the limit have a problem, and are looked up when there is room.
func TestExcess(t *testing.T) {
	w := &world{World: meshtest.New(t)}
	v := &Resolver{Sink: w, Log: slog.New(slog.DiscardHandler)}
	v.prepare()
	var wanted []string
	for n := range maxNames + 1 {
		wanted = append(wanted, fmt.Sprintf("gw%d.test", n))
	}
	held := func() (n int) {
		for _, e := range v.lookups.Wanted {
			if e.Held {
				n++
			}
		}
		return n
	}
	v.follow(wanted)
	last := wanted[maxNames]
	if is, ok := w.Tables.Networks.Resolved.Peek(last); !ok || is.Failure != tooMany || !v.lookups.Wanted[last].Held || held() != 1 {
		t.Fatalf("%+v, %t, %d are held", is, ok, held())
	}
	v.follow(wanted[1:])
	if held() != 0 {
		t.Errorf("%d are held", held())
	}
}
