package conformance

import (
	"github.com/pilotmesh/pilot/test/conformance/client"
)

// removalRules: deleted resources are removed, missing ones are reported as such, later ones arrive.
func removalRules() []rule {
	return []rule{
		{name: "cluster", run: func(s *scene) {
			p := s.all()
			s.put(fileServices, s.a("10.1.0.1"))
			p.awaitGone(client.CDS, s.cluster("b"))
			if p.Get(client.CDS, s.cluster("a")) == nil {
				s.Error("its neighbour went along")
			}
		}},
		{name: "listener", run: func(s *scene) {
			p := s.all()
			s.remove(fileTCP)
			p.awaitGone(client.LDS, listenerT)
		}},
		{name: "subset", run: removalSubset},
		{name: "port", run: removalPort},
		{name: "full-list", only: onlySotW(), run: removalFullList},
		{name: "unknown-eds", only: onlyDelta(), run: func(s *scene) { s.unknown(client.EDS, s.port("nobody", 80, "")) }},
		{name: "unknown-rds", only: onlyDelta(), run: func(s *scene) { s.unknown(client.RDS, "4711") }},
		{name: "unknown-cds", only: onlyDelta(), run: func(s *scene) { s.unknown(client.CDS, s.port("nobody", 80, "")) }},
		{name: "unknown-among-known", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.EDS, s.port("nobody", 80, ""), s.cluster("a"))
			p.at("a", "10.1.0.1")
			p.subscribe(client.RDS, "4711", routeHTTP)
			p.has(client.RDS, routeHTTP)
			p.subscribe(client.CDS, s.port("nobody", 80, ""), s.cluster("a"))
			p.has(client.CDS, s.cluster("a"))
		}},
		{name: "born-later", run: removalBornLater},
		{name: "born-again", run: removalBornAgain},
		{name: "endpoints", only: onlyDelta(), run: func(s *scene) {
			p := s.all()
			p.at("b", "10.1.0.2")
			s.put(fileServices, s.a("10.1.0.1"))
			p.await("the endpoints to go", func() bool { return len(p.addresses(s.cluster("b"))) == 0 })
		}},
		{name: "last-endpoint", run: removalLastEndpoint},
		{name: "never-had", only: onlyDelta(), run: removalNeverHad},
	}
}

func removalSubset(s *scene) {
	s.put("policy.yaml", s.policy("a", 5, "v1", "v2"))
	p := s.all()
	p.has(client.CDS, s.subset("a", "v1"), s.subset("a", "v2"))
	e := s.effects(p, func() {
		s.put("policy.yaml", s.policy("a", 5, "v1"))
		p.awaitGone(client.CDS, s.subset("a", "v2"))
	})
	s.sameNames("clusters gone", e[client.CDS].Gone, []string{s.subset("a", "v2")})
	s.sameNames("clusters changed", e[client.CDS].Put, nil)
}

func removalPort(s *scene) {
	both := "{number: 80, name: http, protocol: HTTP}, {number: 81, name: more, protocol: HTTP}"
	s.put("c.yaml", s.service(service{name: "c", ports: both}))
	p := s.all()
	p.has(client.CDS, s.port("c", 80, ""), s.port("c", 81, ""))
	e := s.effects(p, func() {
		s.put("c.yaml", s.service(service{name: "c"}))
		p.awaitGone(client.CDS, s.port("c", 81, ""))
	})
	s.sameNames("clusters gone", e[client.CDS].Gone, []string{s.port("c", 81, "")})
}

func removalFullList(s *scene) {
	p := s.all()
	s.fence(p)
	want := map[client.Type][]string{
		client.CDS: {s.cluster("a"), s.cluster("b"), s.cluster("w"), s.fenceCluster(), s.port("t", 9000, "")},
		client.LDS: {listenerT},
	}
	mark := len(p.Log)
	s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2"), s.policy("a", 3))
	p.limited("a", 3)
	s.put(fileTCP, s.service(service{name: "t", ports: tcpPort, vip: vipT, endpoints: []string{"10.1.0.3"}}), s.service(service{name: "u", ports: tcpPort, vip: "240.240.0.2"}))
	p.has(client.LDS, "240.240.0.2_9000")
	for _, r := range p.Log[mark:] {
		if !r.Type.Wildcard() {
			continue
		}
		for _, n := range want[r.Type] {
			if r.Get(n) == nil {
				s.Errorf("%q is not in the list: %s", n, r)
			}
		}
	}
}

func removalLastEndpoint(s *scene) {
	p := s.all()
	p.at("w", "10.1.0.4")
	s.put(fileWorkloads, s.service(service{name: "w", selects: "w"}))
	p.await("an empty assignment", func() bool {
		return p.Get(client.EDS, s.cluster("w")) != nil && len(p.addresses(s.cluster("w"))) == 0
	})
	s.put(fileWorkloads, s.service(service{name: "w", selects: "w"}), s.workload("w-1", "w", "10.1.0.5"))
	p.at("w", "10.1.0.5")
}

func removalNeverHad(s *scene) {
	// Removals of strange names are found in every test; here there is much to remove.
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.subscribe(client.RDS, fenceRoute)
	p.at("a", "10.1.0.1")
	p.subscribe(client.CDS, s.cluster("a"), s.fenceCluster())
	p.has(client.CDS, s.cluster("a"), s.fenceCluster())
	e := s.effects(p, func() {
		s.put(fileServices, s.a("10.1.0.1"))
		s.remove(fileTCP)
		s.remove(fileWorkloads)
	})
	for t, e := range e {
		s.sameNames(t.String()+" removed", e.Gone, nil)
	}
}

// unknown checks that a name that does not exist is answered, while nothing else changes.
func (s *scene) unknown(t client.Type, name string) {
	s.Helper()
	p := s.open()
	p.subscribe(t, name)
	r := p.nextWith(0, t, name)
	if res := r.Get(name); t == client.CDS && res != nil {
		s.Errorf("%s %q does not exist and came", t, name)
	}
	// The same beside a name that does exist, later on the stream.
	p.subscribe(t, map[client.Type]string{client.CDS: s.cluster("a"), client.EDS: s.cluster("a"), client.RDS: routeHTTP}[t])
	again := name + "1"
	mark := len(p.Log)
	p.subscribe(t, again)
	p.nextWith(mark, t, again)
}

func removalBornLater(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.port("c", 81, ""), s.fenceCluster())
	p.subscribe(client.RDS, "81", fenceRoute)
	p.subscribe(client.CDS, s.port("c", 81, ""), s.fenceCluster())
	p.has(client.CDS, s.fenceCluster())
	s.fence(p)
	s.put("c.yaml", s.eightyOne("one"))
	p.has(client.CDS, s.port("c", 81, ""))
	p.await("its endpoint", func() bool { return len(p.addresses(s.port("c", 81, ""))) == 1 })
	p.await("its route", func() bool { return p.mentions(client.RDS, "81", "/one/") })
}

// removalBornAgain: a client that did not give up its subscriptions has the service back.
func removalBornAgain(s *scene) {
	p := s.all()
	has := func() bool { return p.mentions(client.RDS, routeHTTP, s.host("b")) }
	for _, address := range []string{"10.1.0.12", "10.1.0.2"} {
		s.put(fileServices, s.a("10.1.0.1"))
		p.awaitGone(client.CDS, s.cluster("b"))
		p.await("the virtual host to go", func() bool { return !has() })
		s.put(fileServices, s.a("10.1.0.1"), s.b(address))
		p.has(client.CDS, s.cluster("b"))
		p.await("the virtual host to come", has)
		p.at("b", address)
	}
	follower := s.connect()
	s.put(fileServices, s.a("10.1.0.1"))
	follower.awaitGone(client.CDS, s.cluster("b"))
	s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2"))
	follower.at("b", "10.1.0.2")
	follower.await("all it refers to", func() bool { return len(follower.Loose()) == 0 })
}
