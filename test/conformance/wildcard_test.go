package conformance

import (
	"slices"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// wildcardRules: who asks for everything, and who does not any more.
func wildcardRules() []rule {
	return []rule{
		{name: "star", run: func(s *scene) {
			legacy, star := s.open(), s.open()
			for _, t := range []client.Type{client.CDS, client.LDS} {
				legacy.subscribe(t)
				star.subscribe(t, client.Star)
			}
			for _, p := range []*peer{legacy, star} {
				p.awaitBase()
				s.fence(p)
			}
			s.fence(legacy, star)
			s.sameContent("an empty first request and a star", legacy, star)
		}},
		{name: "star-and-name", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS, client.Star, s.cluster("a"))
			p.awaitBase()
			s.newcomerComes(p)
		}},
		{name: "legacy-and-name", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS)
			p.awaitBase()
			p.subscribe(client.CDS, s.cluster("a"))
			s.newcomerComes(p)
		}},
		{name: "name-then-star", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS, s.cluster("a"))
			p.has(client.CDS, s.cluster("a"))
			p.subscribe(client.CDS, client.Star)
			p.awaitBase()
			s.newcomerComes(p)
		}},
		{name: "leave-star", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS, client.Star, s.cluster("a"), s.fenceCluster())
			p.awaitBase()
			p.unsubscribe(client.CDS, client.Star)
			s.newcomerStaysAway(p)
			s.put("policy.yaml", s.policy("a", 3))
			p.limited("a", 3)
		}},
		{name: "empty-later", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS, s.cluster("a"))
			p.subscribe(client.RDS, fenceRoute)
			p.has(client.CDS, s.cluster("a"))
			p.has(client.RDS, fenceRoute)
			p.unsubscribe(client.CDS, s.cluster("a"))
			if s.variant == client.Delta {
				p.send(client.Request{URL: client.CDS.URL()})
			}
			s.newcomerStaysAway(p)
		}},
		{name: "star-gone", run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS, client.Star)
			p.subscribe(client.RDS, fenceRoute)
			p.has(client.CDS, s.cluster("a"))
			p.has(client.RDS, fenceRoute)
			p.unsubscribe(client.CDS, client.Star)
			s.newcomerStaysAway(p)
		}},
		{name: "name-left", only: onlyDelta(), run: func(s *scene) {
			p := s.open()
			p.subscribe(client.CDS, client.Star, s.cluster("a"))
			p.awaitBase()
			s.fence(p)
			mark := len(p.Log)
			p.unsubscribe(client.CDS, s.cluster("a"))
			if r := p.nextWith(mark, client.CDS, s.cluster("a")); r.Get(s.cluster("a")) == nil {
				s.Error("a name dropped beside a wildcard that includes it was removed")
			}
		}},
		{name: "foreign-name-left", only: onlyDelta(), run: func(s *scene) {
			p := s.open()
			foreign := s.port("nobody", 80, "")
			p.subscribe(client.CDS, client.Star, foreign)
			p.awaitBase()
			s.fence(p)
			mark := len(p.Log)
			p.unsubscribe(client.CDS, foreign)
			if r := p.nextWith(mark, client.CDS, foreign); !slices.Contains(r.Removed, foreign) {
				s.Error("a name that does not exist was delivered")
			}
		}},
		{name: "eds", run: func(s *scene) {
			for _, names := range [][]string{nil, {client.Star}} {
				p := s.open()
				p.subscribe(client.EDS, names...)
				p.subscribe(client.CDS)
				p.has(client.CDS, s.cluster("a"))
				p.subscribe(client.EDS, s.cluster("a"))
				p.at("a", "10.1.0.1")
			}
		}},
	}
}

// newcomerComes checks that a new service's cluster comes.
func (s *scene) newcomerComes(p *peer) {
	s.Helper()
	s.put("new.yaml", s.service(service{name: "new"}))
	p.has(client.CDS, s.cluster("new"))
}

// newcomerStaysAway checks that a new service's cluster does not come.
func (s *scene) newcomerStaysAway(p *peer) {
	s.Helper()
	s.fence(p)
	mark := len(p.Log)
	s.put("new.yaml", s.service(service{name: "new"}))
	s.fence(p)
	if r := p.find(mark, client.CDS, s.cluster("new")); r != nil {
		s.Errorf("a cluster that was not asked for came: %s", r)
	}
}
