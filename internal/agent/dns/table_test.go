package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/nds"
)

// tableOf makes a table of lines: "NAME [k8s] ADDRESS...".
func tableOf(t testing.TB, lines ...string) *Table {
	t.Helper()
	table := &Table{}
	for _, line := range lines {
		f := strings.Fields(line)
		e := nds.Entry{Host: f[0], Registry: "External", Addresses: f[1:]}
		if len(f) > 1 && f[1] == "k8s" {
			e.Registry, e.Addresses = nds.Kubernetes, f[2:]
		}
		host, n, err := newName(e, "1")
		if err != nil {
			t.Fatal(err)
		}
		table = table.with(omap.Put(host, n))
	}
	return table
}

func names() []string {
	return []string{
		"web.shop.svc.cluster.local k8s 10.0.0.1 fd00::1",
		"web.other.svc.cluster.local k8s 10.0.0.2",
		"db.shop.svc.cluster.local k8s 10.1.0.1 10.1.0.2",
		"db-0.db.shop.svc.cluster.local k8s 10.1.0.1",
		"pay.example.com 240.240.0.1 2001:2::1",
		"six.example.com 2001:2::6",
		"fake.shop.svc.cluster.local 240.240.0.9",
		"*.cdn.example.com 240.240.0.3",
		"*.eu.cdn.example.com 240.240.0.4",
		"own.cdn.example.com 240.240.0.5",
		"Upper.Example.COM 240.240.0.6",
	}
}

func search() []string {
	return []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}
}

// newProxy is a proxy without servers and sockets, with a table.
func newProxy(t testing.TB, table *Table, servers ...netip.AddrPort) *Proxy {
	t.Helper()
	p, err := Listen(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	if table != nil {
		p.table.Store(table)
	}
	p.resolver.Store(&resolver{servers: servers, search: search()})
	serve(t, p)
	return p
}

func question(name string, kind uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
}

// show returns an answer as text: its code, and its records in order.
func show(a *dns.Msg) string {
	list := []string{dns.RcodeToString[a.Rcode]}
	var addresses []string
	for _, r := range a.Answer {
		switch r := r.(type) {
		case *dns.CNAME:
			list = append(list, "("+r.Target+")")
		case *dns.A:
			addresses = append(addresses, r.A.String())
		case *dns.AAAA:
			addresses = append(addresses, r.AAAA.String())
		default:
			addresses = append(addresses, fmt.Sprintf("%T", r))
		}
	}
	slices.Sort(addresses)
	return strings.Join(append(list, addresses...), " ")
}

// TestAnswers: names of the mesh, short ones, names with an appended domain of the search list, and patterns.
func TestAnswers(t *testing.T) {
	p := newProxy(t, tableOf(t, names()...), upstreamServer(t, nxdomain))
	for _, c := range []struct {
		name string
		kind uint16
		want string
	}{
		{"web.shop.svc.cluster.local", dns.TypeA, "NOERROR 10.0.0.1"},
		{"web.shop.svc.cluster.local", dns.TypeAAAA, "NOERROR fd00::1"},
		{"WEB.shop.SVC.cluster.local", dns.TypeA, "NOERROR 10.0.0.1"},
		{"web", dns.TypeA, "NOERROR 10.0.0.1"},
		{"web.shop", dns.TypeA, "NOERROR 10.0.0.1"},
		{"web.shop.svc", dns.TypeA, "NOERROR 10.0.0.1"},
		{"web.other", dns.TypeA, "NOERROR 10.0.0.2"},
		{"web.other.svc", dns.TypeA, "NOERROR 10.0.0.2"},
		{"other", dns.TypeA, "NXDOMAIN"},
		// A pod with a host name, in full and short.
		{"db-0.db.shop.svc.cluster.local", dns.TypeA, "NOERROR 10.1.0.1"},
		{"db-0.db", dns.TypeA, "NOERROR 10.1.0.1"},
		{"db-0.db.shop.svc", dns.TypeA, "NOERROR 10.1.0.1"},
		{"db.shop.svc.cluster.local", dns.TypeA, "NOERROR 10.1.0.1 10.1.0.2"},
		// The name exists, and has no address of this IP version: that is not the same as a name that does not exist.
		{"web.other.svc.cluster.local", dns.TypeAAAA, "NOERROR"},
		{"six.example.com", dns.TypeA, "NOERROR"},
		{"six.example.com", dns.TypeAAAA, "NOERROR 2001:2::6"},
		{"nobody.example.com", dns.TypeA, "NXDOMAIN"},
		// Another type of a name of the mesh: the other servers do not know the name, and it exists all the same.
		{"pay.example.com", dns.TypeHTTPS, "NOERROR"},
		{"pay.example.com", dns.TypeMX, "NOERROR"},
		// A resolver appends each domain of its search list to the name.
		{"pay.example.com.shop.svc.cluster.local", dns.TypeA, "NOERROR (pay.example.com.) 240.240.0.1"},
		{"pay.example.com.cluster.local", dns.TypeAAAA, "NOERROR (pay.example.com.) 2001:2::1"},
		{"six.example.com.shop.svc.cluster.local", dns.TypeA, "NOERROR"},
		{"web.other.shop.svc.cluster.local", dns.TypeA, "NOERROR (web.other.) 10.0.0.2"},
		{"nobody.example.com.shop.svc.cluster.local", dns.TypeA, "NXDOMAIN"},
		// A host of a ServiceEntry has no short names, even if it looks like a Service.
		{"fake.shop.svc.cluster.local", dns.TypeA, "NOERROR 240.240.0.9"},
		{"fake.shop", dns.TypeA, "NXDOMAIN"},
		// The longest pattern counts, and a name of its own before any. A pattern does not cover its own domain.
		{"a.cdn.example.com", dns.TypeA, "NOERROR 240.240.0.3"},
		{"a.b.cdn.example.com", dns.TypeA, "NOERROR 240.240.0.3"},
		{"a.eu.cdn.example.com", dns.TypeA, "NOERROR 240.240.0.4"},
		{"own.cdn.example.com", dns.TypeA, "NOERROR 240.240.0.5"},
		{"cdn.example.com", dns.TypeA, "NXDOMAIN"},
		{"a.cdn.example.com.svc.cluster.local", dns.TypeA, "NOERROR (a.cdn.example.com.) 240.240.0.3"},
		{"upper.example.com", dns.TypeA, "NOERROR 240.240.0.6"},
		{".", dns.TypeA, "NXDOMAIN"},
	} {
		if got := show(query(t, p, "udp", question(c.name, c.kind))); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.name, dns.TypeToString[c.kind], got, c.want)
		}
	}
}

// TestOtherDomain: a workload whose domain is not the domain of a namespace has no short names.
func TestOtherDomain(t *testing.T) {
	table := tableOf(t, names()...)
	if n, _ := table.find("web", domains{Own: "vm.example.com"}); n != nil {
		t.Error("it has")
	}
	if n, _ := table.find("web.shop.svc.cluster.local", domains{Own: "vm.example.com"}); n == nil {
		t.Error("it does not know the full name")
	}
}

// TestRefusedNames: an entry with an invalid name or address is refused.
func TestRefusedNames(t *testing.T) {
	for _, e := range []nds.Entry{
		{Host: ""}, {Host: "."}, {Host: strings.Repeat("a", 254)}, {Host: "a.com", Addresses: []string{"10.0.0"}},
		{Host: "a.com", Addresses: []string{"fe80::1%eth0"}}, {Host: "a.com", Addresses: make([]string, maxAddresses+1)},
	} {
		if _, _, err := newName(e, ""); err == nil {
			t.Errorf("%.20q was taken", e.Host)
		}
	}
}

// TestResolvConf: servers that are the agent itself are left out.
func TestResolvConf(t *testing.T) {
	own := netip.MustParseAddrPort("127.0.0.1:53")
	r, err := readResolver(write(t, "search Shop.svc.cluster.local. svc.cluster.local\nnameserver 127.0.0.1\nnameserver 10.0.0.10\nnameserver fd00::10\nnameserver 10.0.0.10\nnameserver x\noptions ndots:5\n"), []netip.AddrPort{own})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.servers, r.search); got != "[10.0.0.10:53 [fd00::10]:53] [shop.svc.cluster.local svc.cluster.local]" {
		t.Error(got)
	}
	if _, err := readResolver("/nowhere/resolv.conf", nil); err == nil {
		t.Error("a file that is not there was read")
	}
}

// TestFollowResolvConf: a file that is half written is not used, nor one without servers; a file that stays the same is.
func TestFollowResolvConf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := write(t, "nameserver 10.0.0.10\n")
		p := &Proxy{o: Options{ResolvConf: file, Log: slog.New(slog.DiscardHandler)}}
		first, err := readResolver(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.resolver.Store(first)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.follow(ctx, nil) }()
		<-time.After(rereadInterval - confirmInterval/2)
		for n, step := range []struct {
			text, want string
			wait       time.Duration
		}{
			{"nameserver 10.0.0.2", "[10.0.0.10:53]", confirmInterval},                         // read once
			{"nameserver 10.0.0.20\n", "[10.0.0.10:53]", confirmInterval},                      // read once, and differs from the reading before
			{"nameserver 10.0.0.20\nsearch a\n", "[10.0.0.10:53]", confirmInterval},            // the same
			{"nameserver 10.0.0.20\nsearch a\n", "[10.0.0.20:53]", confirmInterval},            // read twice
			{"", "[10.0.0.20:53]", 3 * rereadInterval},                                         // no server
			{"nameserver 10.0.0.30\n", "[10.0.0.30:53]", 2*rereadInterval + 2*confirmInterval}, // it stays
		} {
			if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			<-time.After(step.wait)
			synctest.Wait()
			if got := fmt.Sprint(p.resolver.Load().servers); got != step.want {
				t.Errorf("step %d: the servers are %s, want %s", n, got, step.want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// FuzzAnswer: whatever a client sends has an answer that can be sent, which is for its question.
func FuzzAnswer(f *testing.F) {
	table := tableOf(f, names()...)
	p := &Proxy{o: testOptions(f)}
	p.forward = forwarder{metrics: &p.metrics, slots: make(chan struct{})}
	p.table.Store(table)
	p.resolver.Store(&resolver{search: search()})
	for _, q := range []*dns.Msg{question("web", dns.TypeA), question("a.cdn.example.com.shop.svc.cluster.local", dns.TypeAAAA), question("x", dns.TypeANY)} {
		q.SetEdns0(4096, true)
		b, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var q dns.Msg
		if q.Unpack(b) != nil || q.Response {
			return
		}
		a := p.answer(t.Context(), &q, netip.AddrPort{}, false)
		a.Truncate(sizeFor(&q))
		packed, err := a.Pack()
		if err != nil || a.Id != q.Id || !a.Response || len(packed) > max(maxUDP, len(b)) {
			t.Errorf("%v: %d bytes: %v\n%v", err, len(packed), &q, a)
		}
	})
}
