package conformance

import (
	"github.com/pilotmesh/pilot/test/conformance/client"
)

// unsubscribeRules: unsubscribed resources stay away, and the others stay.
func unsubscribeRules() []rule {
	return []rule{
		{name: "stops", run: func(s *scene) {
			p := s.all()
			s.fence(p)
			p.unsubscribe(client.EDS, s.cluster("a"))
			s.fence(p)
			e := s.effects(p, func() {
				s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.12"))
				p.at("b", "10.1.0.12")
			})
			s.sameNames("assignments sent", union(e[client.EDS].Put, e[client.EDS].Again), []string{s.cluster("b")})
		}},
		{name: "routes", run: unsubscribeRoutes},
		{name: "back", run: func(s *scene) {
			p := s.all()
			p.unsubscribe(client.EDS, s.cluster("a"))
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"))
			s.fence(p)
			p.subscribe(client.EDS, s.cluster("a"))
			p.at("a", "10.1.0.11")
			s.put(fileServices, s.a("10.1.0.12"), s.b("10.1.0.2"))
			p.at("a", "10.1.0.12")
		}},
		{name: "silent", run: func(s *scene) {
			p := s.all()
			s.quiet(p, "dropping a name", func() {
				p.unsubscribe(client.EDS, s.cluster("a"))
				p.unsubscribe(client.RDS, routeHTTP)
			})
		}},
		{name: "all", run: unsubscribeAll},
		{name: "phantom", only: onlyDelta(), run: func(s *scene) {
			p := s.all()
			s.quiet(p, "dropping what was never asked for", func() {
				p.unsubscribe(client.EDS, s.port("nobody", 80, ""))
				p.unsubscribe(client.RDS, "4711")
			})
		}},
		{name: "swap", run: unsubscribeSwap},
		{name: "other-type", run: func(s *scene) {
			p := s.all()
			s.fence(p)
			p.unsubscribe(client.EDS, s.assignments()...)
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3), s.routes("a", "tag", "b"))
			p.limited("a", 3)
			p.routed("tag")
		}},
	}
}

func unsubscribeRoutes(s *scene) {
	s.put("c.yaml", s.eightyOne("one"))
	p := s.all()
	p.subscribe(client.RDS, "81")
	p.await("route one", func() bool { return p.mentions(client.RDS, "81", "/one/") })
	p.unsubscribe(client.RDS, routeHTTP)
	s.fence(p)
	e := s.effects(p, func() {
		s.put("edit.yaml", s.routes("a", "tag", "b"))
		s.put("c.yaml", s.eightyOne("two"))
		p.await("route two", func() bool { return p.mentions(client.RDS, "81", "/two/") })
	})
	s.sameNames("routes sent", union(e[client.RDS].Put, e[client.RDS].Again), []string{"81"})
}

func unsubscribeSwap(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.at("a", "10.1.0.1")
	s.must(p.Change(client.EDS, []string{s.cluster("b")}, []string{s.cluster("a")}))
	p.at("b", "10.1.0.2")
	e := s.effects(p, func() {
		s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.12"))
		p.at("b", "10.1.0.12")
	})
	s.sameNames("assignments sent", union(e[client.EDS].Put, e[client.EDS].Again), []string{s.cluster("b")})
}

// eightyOne are the documents of a service c on port 81 with a route.
func (s *scene) eightyOne(tag string) string {
	return s.service(service{name: "c", ports: "{number: 81, name: http, protocol: HTTP}"}) + "---\n" + s.routes("c", tag, "c")
}

// unsubscribeAll: an empty list of names after names is none at all.
func unsubscribeAll(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"))
	p.subscribe(client.CDS, s.cluster("a"))
	p.subscribe(client.RDS, fenceRoute)
	p.at("a", "10.1.0.1")
	p.has(client.CDS, s.cluster("a"))
	p.has(client.RDS, fenceRoute)
	p.unsubscribe(client.EDS, s.cluster("a"))
	p.unsubscribe(client.CDS, s.cluster("a"))
	s.quiet(p, "a change of what was dropped", func() {
		s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.12"), s.policy("a", 3), s.service(service{name: "new"}))
		s.settled("a", 3)
	})
}
