package conformance

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// isolationRules: what a namespace keeps to itself is seen nowhere else. Each has a control plane of its own, because
// it exports services to all namespaces.
func isolationRules() []rule {
	return []rule{
		{name: "private", own: true, run: isolationPrivate},
		{name: "by-name", own: true, run: isolationByName},
		{name: "narrowed", own: true, run: isolationNarrowed},
		{name: "widened", own: true, run: isolationWidened},
		{name: "sidecar", own: true, run: isolationSidecar},
		{name: "same-route-name", own: true, run: isolationSameRouteName},
		{name: "node-change", own: true, run: isolationNodeChange},
	}
}

func isolationPrivate(s *scene) {
	s.put("public.yaml", s.service(service{name: "public", export: "*"}))
	p, q := s.connect(), s.connect(in(s.other()))
	p.has(client.CDS, s.cluster("public"), s.cluster("a"))
	q.has(client.CDS, s.cluster("public"))
	s.put("private.yaml", s.service(service{name: "private"}), s.service(service{name: "tcp", ports: tcpPort, vip: "240.240.0.9"}))
	p.has(client.CDS, s.cluster("private"))
	s.fence(p)
	s.put("public.yaml", s.service(service{name: "public", export: "*", endpoints: []string{"10.1.0.99"}}))
	q.at("public", "10.1.0.99")
	for _, host := range []string{"a", "t", "private", "tcp"} {
		s.neverSaw(q, s.host(host))
	}
}

func isolationByName(s *scene) {
	s.put("public.yaml", s.service(service{name: "public", export: "*"}))
	q := s.open(in(s.other()))
	q.subscribe(client.CDS, s.cluster("a"), s.cluster("public"))
	q.subscribe(client.EDS, s.cluster("a"), s.cluster("public"))
	q.subscribe(client.LDS, listenerT, "virtualOutbound")
	q.subscribe(client.RDS, fenceRoute, routeHTTP)
	q.has(client.CDS, s.cluster("public"))
	q.at("public", "10.1.0.1")
	q.has(client.RDS, routeHTTP)
	if q.Get(client.CDS, s.cluster("a")) != nil || len(q.addresses(s.cluster("a"))) > 0 || q.Get(client.LDS, listenerT) != nil {
		s.Error("what another namespace keeps to itself was had by its name")
	}
	s.neverSawIn(q, client.RDS, s.host("fence"), s.host("a"))
}

func isolationNarrowed(s *scene) {
	s.put("c.yaml", s.exported("*"))
	p, q := s.connect(), s.connect(in(s.other()))
	s.sees(p, true)
	s.sees(q, true)
	s.put("c.yaml", s.exported("."))
	s.sees(q, false)
	s.fence(p)
	s.sees(p, true)
}

func isolationWidened(s *scene) {
	s.put("public.yaml", s.service(service{name: "public", export: "*"}))
	s.put("c.yaml", s.exported("."))
	p, q := s.connect(), s.connect(in(s.other()))
	s.sees(p, true)
	s.put("c.yaml", s.exported("*"))
	s.sees(q, true)
	s.sees(p, true)
}

func isolationSameRouteName(s *scene) {
	s.put("theirs.yaml", s.service(service{name: "theirs", namespace: s.other()}))
	p, q := s.connect(), s.connect(in(s.other()))
	theirs := "theirs." + s.other() + ".test"
	q.await("their route", func() bool { return q.mentions(client.RDS, routeHTTP, theirs) })
	p.await("our route", func() bool { return p.mentions(client.RDS, routeHTTP, s.host("a")) })
	s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2"), s.routes("a", "tag", "b"))
	p.routed("tag")
	s.neverSawIn(q, client.RDS, s.host("a"), "/tag/")
	s.neverSawIn(p, client.RDS, theirs)
}

func isolationNodeChange(s *scene) {
	s.put("theirs.yaml", s.service(service{name: "theirs", namespace: s.other()}))
	q := s.connect(in(s.other()))
	q.has(client.CDS, "outbound|80||theirs."+s.other()+".test")
	p := s.all()
	r := client.Request{URL: client.CDS.URL(), Node: node("client", s.other()), Nonce: p.Nonce(client.CDS), Version: p.Accepted(client.CDS)}
	p.send(r)
	r = client.Request{URL: client.EDS.URL(), Node: node("client", s.other()), Nonce: p.Nonce(client.EDS), Version: p.Accepted(client.EDS)}
	names, _ := p.Asked(client.EDS)
	theirs := "outbound|80||theirs." + s.other() + ".test"
	p.Note(client.EDS, theirs)
	r.Subscribe, r.Names = []string{theirs}, append(names, theirs)
	p.send(r)
	s.fences++
	s.writeFence()
	ctx, cancel := within(patience)
	defer cancel()
	if err := p.Await(ctx, func() bool { return s.fenced(p, client.CDS) && s.fenced(p, client.LDS) }); err != nil && !ended(err) {
		s.Errorf("neither served nor closed: %v", err)
	}
	if len(p.addresses(theirs)) > 0 || p.Get(client.CDS, theirs) != nil {
		s.Error("the stream got the services of the namespace it went over to")
	}
}

// other is a second namespace.
func (s *scene) other() string { return s.ns + "-2" }

// exported are the documents of an HTTP and a TCP service.
func (s *scene) exported(to string) string {
	return s.service(service{name: "c", export: to}) + "---\n" +
		s.service(service{name: "d", export: to, ports: tcpPort, vip: "240.240.0.7"})
}

// sees waits until a peer sees the exported services in all types, or in none.
func (s *scene) sees(p *peer, want bool) {
	s.Helper()
	p.await(fmt.Sprintf("the exported services to be seen: %t", want), func() bool {
		for _, seen := range []bool{
			p.Get(client.CDS, s.cluster("c")) != nil, len(p.addresses(s.cluster("c"))) > 0,
			p.Get(client.CDS, s.port("d", 9000, "")) != nil, p.Get(client.LDS, "240.240.0.7_9000") != nil,
			p.mentions(client.RDS, routeHTTP, s.host("c")),
		} {
			if seen != want {
				return false
			}
		}
		return true
	})
}

// neverSaw checks that nothing a peer was ever sent holds a text.
func (s *scene) neverSaw(p *peer, text string) {
	s.Helper()
	for _, t := range client.All() {
		s.neverSawIn(p, t, text)
	}
}

func (s *scene) neverSawIn(p *peer, t client.Type, texts ...string) {
	s.Helper()
	for _, r := range p.Log {
		for _, res := range r.Resources {
			for _, text := range texts {
				if r.Type == t && (bytes.Contains(res.Body, []byte(text)) || strings.Contains(res.Name, text)) {
					s.Errorf("%s %q holds %q", t, res.Name, text)
				}
			}
		}
	}
}

// isolationSidecar: a Sidecar narrows its own namespace only, and widens it again when it goes.
func isolationSidecar(s *scene) {
	s.put("public.yaml", s.service(service{name: "public", export: "*"}), s.service(service{name: "public2", export: "*"}))
	p, q := s.connect(), s.connect(in(s.other()))
	for _, one := range []*peer{p, q} {
		one.has(client.CDS, s.cluster("public"), s.cluster("public2"))
	}
	s.put("sidecar.yaml", sidecar(s.ns, "./"+s.host("a"), "./"+s.host("fence"), "./"+s.host("public")))
	p.awaitGone(client.CDS, s.cluster("public2"), s.cluster("b"), s.port("t", 9000, ""))
	p.awaitGone(client.LDS, listenerT)
	p.await("the virtual host to go", func() bool { return !p.mentions(client.RDS, routeHTTP, s.host("b")) })
	if p.Get(client.CDS, s.cluster("a")) == nil || p.Get(client.CDS, s.cluster("public")) == nil {
		s.Error("what the Sidecar names is gone, too")
	}
	s.fence(p)
	s.put("more.yaml", s.service(service{name: "more", export: "*"}))
	q.has(client.CDS, s.cluster("more"))
	s.fence(p)
	s.neverSaw(p, s.host("more"))
	if q.Get(client.CDS, s.cluster("public2")) == nil {
		s.Error("the Sidecar narrowed another namespace")
	}
	s.remove("sidecar.yaml")
	p.has(client.CDS, s.cluster("public2"), s.cluster("b"), s.cluster("more"))
	p.has(client.LDS, listenerT)
}
