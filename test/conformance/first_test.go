package conformance

import (
	"slices"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// firstRules: a subscription is answered.
func firstRules() []rule {
	return []rule{
		{name: "cds-wildcard", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS)
			p.has(client.CDS, s.cluster("a"), s.cluster("b"), s.cluster("w"), s.port("t", 9000, ""), s.fenceCluster())
		}},
		{name: "lds-wildcard", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.LDS)
			p.has(client.LDS, listenerT, s.fenceVIP(0)+"_7001")
		}},
		{name: "eds-named", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.EDS, s.cluster("a"))
			p.at("a", "10.1.0.1")
		}},
		{name: "rds-named", run: firstRdsNamed},
		{name: "only-named", run: firstOnlyNamed},
		{name: "cds-named", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS, s.cluster("a"))
			p.has(client.CDS, s.cluster("a"))
		}},
		{name: "cds-named-only", wish: true, run: firstCdsNamedOnly},
		{name: "lds-named", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.LDS, listenerT)
			p.has(client.LDS, listenerT)
		}},
		{name: "more-names", run: firstMoreNames},
		{name: "more-names-only", wish: true, run: firstMoreNamesOnly},
		{name: "known-again", only: onlyDelta(), run: firstKnownAgain},
		{name: "dropped-again", run: firstDroppedAgain},
		{name: "together", run: func(s *scene) {
			p := s.open()
			p.askAll()
			p.awaitBase()
		}},
		{name: "any-order", run: firstAnyOrder},
		// That a response is of the type asked for, and its resources are, is checked of every response.
		{name: "type", run: firstType},
		{name: "unacked", wish: true, run: firstUnacked},
	}
}

func firstRdsNamed(s *scene) {
	p := s.open()
	p.subscribe(client.RDS, routeHTTP)
	p.has(client.RDS, routeHTTP)
	if !p.mentions(client.RDS, routeHTTP, s.host("a")) || !p.mentions(client.RDS, routeHTTP, s.host("b")) {
		s.Errorf("route configuration %s does not mention the services of port 80", routeHTTP)
	}
}

func firstCdsNamedOnly(s *scene) {
	p := s.open()
	p.subscribe(client.CDS, s.cluster("a"))
	r := p.next(client.CDS)
	for _, res := range r.Resources {
		if res.Name != s.cluster("a") {
			s.Errorf("asked for one cluster, also got %q", res.Name)
		}
	}
}

func firstMoreNames(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"))
	p.at("a", "10.1.0.1")
	p.subscribe(client.EDS, s.cluster("b"))
	p.at("b", "10.1.0.2")
	p.subscribe(client.RDS, routeHTTP)
	p.has(client.RDS, routeHTTP)
	p.subscribe(client.RDS, fenceRoute)
	p.has(client.RDS, fenceRoute)
	// In haste, without waiting for answers.
	q := s.open()
	for _, name := range s.assignments() {
		q.subscribe(client.EDS, name)
	}
	q.has(client.EDS, s.assignments()...)
}

func firstMoreNamesOnly(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.at("a", "10.1.0.1")
	s.fence(p)
	e := s.effects(p, func() {
		p.subscribe(client.EDS, s.cluster("b"))
		p.at("b", "10.1.0.2")
	})
	s.sameNames("sent again", e[client.EDS].Again, nil)
}

func firstKnownAgain(s *scene) {
	p := s.all()
	for t, name := range map[client.Type]string{client.CDS: s.cluster("a"), client.EDS: s.cluster("a"), client.LDS: listenerT, client.RDS: routeHTTP} {
		mark := len(p.Log)
		p.subscribe(t, name)
		if r := p.nextWith(mark, t, name); r.Get(name) == nil {
			s.Errorf("%s %q was removed instead of delivered again", t, name)
		}
	}
}

func firstDroppedAgain(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.cluster("b"), s.fenceCluster())
	p.subscribe(client.RDS, routeHTTP, fenceRoute)
	p.at("a", "10.1.0.1")
	p.has(client.RDS, routeHTTP)
	p.unsubscribe(client.EDS, s.cluster("a"))
	p.unsubscribe(client.RDS, routeHTTP)
	s.fence(p)
	p.subscribe(client.EDS, s.cluster("a"))
	p.at("a", "10.1.0.1")
	p.subscribe(client.RDS, routeHTTP)
	p.has(client.RDS, routeHTTP)
}

func firstAnyOrder(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"))
	p.at("a", "10.1.0.1")
	p.subscribe(client.CDS)
	p.has(client.CDS, s.cluster("a"))
	q := s.open()
	q.subscribe(client.RDS, routeHTTP)
	q.has(client.RDS, routeHTTP)
	q.subscribe(client.LDS)
	q.has(client.LDS, listenerT)
}

func firstType(s *scene) {
	for _, t := range client.All() {
		p := s.open()
		p.subscribe(t, map[client.Type][]string{client.EDS: {s.cluster("a")}, client.RDS: {routeHTTP}}[t]...)
		p.await("a response", func() bool { return len(p.Log) > 0 })
		if r := p.Log[0]; r.URL != t.URL() || len(r.Resources) == 0 {
			s.Errorf("asked for %s, got %d resources of %s", t.URL(), len(r.Resources), r.URL)
		}
	}
}

func firstUnacked(s *scene) {
	p := s.open(answers(func(*client.Response) client.Answer { return client.Hold }))
	p.subscribe(client.CDS)
	p.has(client.CDS, s.cluster("a"))
	p.subscribe(client.LDS)
	p.has(client.LDS, listenerT)
	p.subscribe(client.EDS, s.cluster("a"))
	p.at("a", "10.1.0.1")
	p.subscribe(client.RDS, routeHTTP)
	p.has(client.RDS, routeHTTP)
}

func firstOnlyNamed(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.subscribe(client.RDS, fenceRoute)
	p.at("a", "10.1.0.1")
	p.has(client.RDS, fenceRoute)
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.12"), s.routes("a", "tag", "b"))
	p.at("a", "10.1.0.11")
	s.fence(p)
	for _, r := range p.Log {
		for _, res := range r.Resources {
			if names, _ := p.Asked(r.Type); !slices.Contains(names, res.Name) {
				s.Errorf("%s response %d has %q, which was not asked for", r.Type, r.Index, res.Name)
			}
		}
	}
}
