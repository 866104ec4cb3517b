package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// names is a network whose services are given and which follows nothing.
func names(t *testing.T) *Network {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	n := &Network{o: Options{Domain: "cluster.local"}, services: corelisters.NewServiceLister(index), endpoints: newEndpoints(func() {})}
	normal := service("web", "10.0.0.1 fd00::1", 80)
	db := service("db", "None", 5432)
	members := slice(db, 5432, "10.1.0.1", "10.1.0.2", "10.1.0.3 unready")
	host := "db-0"
	members.Endpoints[0].Hostname = &host
	n.endpoints.put(members, false)
	alias := func(name, to string) *core.Service {
		return &core.Service{ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: name}, Spec: core.ServiceSpec{Type: core.ServiceTypeExternalName, ExternalName: to}}
	}
	for _, s := range []*core.Service{normal, db, alias("inside", "web.default.svc.cluster.local"), alias("outside", "example.com"), alias("circle", "circle.default.svc.cluster.local")} {
		if err := index.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	n.endpoints.advance(n.endpoints.waiting[0].at)
	return n
}

func TestNames(t *testing.T) {
	n := names(t)
	for _, c := range []struct {
		question string // type and name
		rcode    int
		want     []string // the records' data, sorted
	}{
		{"A web.default.svc.cluster.local.", dns.RcodeSuccess, []string{"10.0.0.1"}},
		{"AAAA WEB.default.svc.cluster.local.", dns.RcodeSuccess, []string{"fd00::1"}},
		{"SRV _http._tcp.web.default.svc.cluster.local.", dns.RcodeSuccess, []string{"0 100 80 web.default.svc.cluster.local."}},
		{"SRV _grpc._tcp.web.default.svc.cluster.local.", dns.RcodeNameError, nil},
		{"A db.default.svc.cluster.local.", dns.RcodeSuccess, []string{"10.1.0.1", "10.1.0.2"}},
		{"AAAA db.default.svc.cluster.local.", dns.RcodeSuccess, nil},
		{"A db-0.db.default.svc.cluster.local.", dns.RcodeSuccess, []string{"10.1.0.1"}},
		{"A 10-1-0-2.db.default.svc.cluster.local.", dns.RcodeSuccess, []string{"10.1.0.2"}},
		{"A db-1.db.default.svc.cluster.local.", dns.RcodeNameError, nil},
		{"SRV _http._tcp.db.default.svc.cluster.local.", dns.RcodeSuccess, []string{"0 50 5432 10-1-0-2.db.default.svc.cluster.local.", "0 50 5432 db-0.db.default.svc.cluster.local."}},
		{"A inside.default.svc.cluster.local.", dns.RcodeSuccess, []string{"10.0.0.1", "web.default.svc.cluster.local."}},
		{"CNAME inside.default.svc.cluster.local.", dns.RcodeSuccess, []string{"web.default.svc.cluster.local."}},
		{"A outside.default.svc.cluster.local.", dns.RcodeSuccess, []string{"example.com."}},
		{"A 10-9-8-7.default.pod.cluster.local.", dns.RcodeSuccess, []string{"10.9.8.7"}},
		{"A none.default.svc.cluster.local.", dns.RcodeNameError, nil},
		{"A default.svc.cluster.local.", dns.RcodeSuccess, nil},
		{"A none.svc.cluster.local.", dns.RcodeNameError, nil},
		{"A web.default.svc.cluster.local.default.svc.cluster.local.", dns.RcodeNameError, nil},
		{"A example.com.", dns.RcodeNameError, nil},
		{"PTR 1.0.0.10.in-addr.arpa.", dns.RcodeSuccess, []string{"web.default.svc.cluster.local."}},
		{"PTR 1.0.1.10.in-addr.arpa.", dns.RcodeSuccess, []string{"db-0.db.default.svc.cluster.local."}},
		{"PTR 9.0.1.10.in-addr.arpa.", dns.RcodeNameError, nil},
		{"TXT dns-version.cluster.local.", dns.RcodeSuccess, []string{`"1.1.0"`}},
	} {
		kind, name, _ := strings.Cut(c.question, " ")
		m := new(dns.Msg)
		n.answer(m, dns.Question{Name: name, Qtype: dns.StringToType[kind], Qclass: dns.ClassINET})
		var got []string
		for _, r := range m.Answer {
			got = append(got, strings.TrimPrefix(r.String(), r.Header().String()))
		}
		slices.Sort(got)
		if m.Rcode != c.rcode || !slices.Equal(got, c.want) {
			t.Errorf("%s: %s %q, want %s %q", c.question, dns.RcodeToString[m.Rcode], got, dns.RcodeToString[c.rcode], c.want)
		}
		if len(m.Answer) == 0 && len(m.Ns) == 0 {
			t.Errorf("%s: nothing, and no SOA that says how long", c.question)
		}
	}
}

// TestCircularAlias ends, with as many records as it followed.
func TestCircularAlias(t *testing.T) {
	m := new(dns.Msg)
	names(t).answer(m, dns.Question{Name: "circle.default.svc.cluster.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET})
	if len(m.Answer) == 0 || len(m.Answer) > maxAliases+2 {
		t.Errorf("%d records for a name that leads to itself", len(m.Answer))
	}
}

// TestReachable: an unready endpoint gets nothing; a terminating endpoint gets connections only if there is no other.
func TestReachable(t *testing.T) {
	s := service("a", "10.0.0.1", 80)
	for _, c := range []struct {
		endpoints []string
		want      string
	}{
		{[]string{"10.1.0.1", "10.1.0.2 unready", "10.1.0.3 terminating"}, "[10.1.0.1:80]"},
		{[]string{"10.1.0.2 unready", "10.1.0.3 terminating"}, "[10.1.0.3:80]"},
		{[]string{"10.1.0.2 unready"}, "[]"},
	} {
		got := reachable([]*discovery.EndpointSlice{slice(s, 80, c.endpoints...)}, s.Spec.Ports[0])
		if text := fmt.Sprint(got); text != c.want {
			t.Errorf("%v: %s, want %s", c.endpoints, text, c.want)
		}
	}
}
