package conformance

import (
	"slices"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// wildcardRules: clients that subscribe to everything, and clients that end that.
func wildcardRules() []rule {
	both := func(run func(s *scene, t client.Type, known string)) func(*scene) {
		return func(s *scene) {
			run(s, client.CDS, s.cluster("a"))
			run(s, client.LDS, listenerT)
		}
	}
	return []rule{
		{name: "star", run: wildcardStar},
		{name: "star-and-name", run: both(func(s *scene, t client.Type, known string) {
			p := s.open()
			p.subscribe(t, client.Star, known)
			p.awaitBase()
			s.newcomerComes(p)
		})},
		{name: "legacy-and-name", run: both(func(s *scene, t client.Type, known string) {
			p := s.open()
			p.subscribe(t)
			p.awaitBase()
			p.subscribe(t, known)
			s.newcomerComes(p)
		})},
		{name: "name-then-star", run: both(wildcardNameThenStar)},
		{name: "leave-star", run: both(wildcardLeaveStar)},
		{name: "empty-later", run: both(wildcardEmptyLater)},
		{name: "star-gone", run: both(func(s *scene, t client.Type, known string) {
			p := s.beside()
			p.subscribe(t, client.Star)
			p.has(t, known)
			p.unsubscribe(t, client.Star)
			s.newcomerStaysAway(p)
		})},
		{name: "name-left", only: onlyDelta(), run: wildcardNameLeft},
		{name: "foreign-name-left", only: onlyDelta(), run: wildcardForeignNameLeft},
		{name: "eds", run: wildcardEds},
	}
}

func wildcardStar(s *scene) {
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
}

func wildcardNameThenStar(s *scene, t client.Type, known string) {
	p := s.open()
	p.subscribe(t, known)
	p.has(t, known)
	p.subscribe(t, client.Star)
	p.awaitBase()
	s.newcomerComes(p)
}

func wildcardLeaveStar(s *scene, t client.Type, known string) {
	p := s.beside()
	p.subscribe(t, client.Star, known)
	p.awaitBase()
	p.unsubscribe(t, client.Star)
	s.newcomerStaysAway(p)
	mark := len(p.Log)
	if t == client.CDS {
		s.put("policy.yaml", s.policy("a", 3))
	} else {
		s.put(fileTCP, s.service(service{name: "t", host: s.host("t2"), ports: tcpPort, vip: vipT}))
	}
	if r := p.nextWith(mark, t, known); r.Get(known) == nil {
		s.Errorf("%s %q was removed instead of changed", t, known)
	}
}

func wildcardEmptyLater(s *scene, t client.Type, known string) {
	p := s.beside()
	p.subscribe(t, known)
	p.has(t, known)
	p.unsubscribe(t, known)
	if s.variant == client.Delta {
		p.send(client.Request{URL: t.URL()})
	}
	s.newcomerStaysAway(p)
}

func wildcardNameLeft(s *scene) {
	p := s.open()
	p.subscribe(client.CDS, client.Star, s.cluster("a"))
	p.awaitBase()
	s.fence(p)
	mark := len(p.Log)
	p.unsubscribe(client.CDS, s.cluster("a"))
	if r := p.nextWith(mark, client.CDS, s.cluster("a")); r.Get(s.cluster("a")) == nil {
		s.Error("a name dropped beside a wildcard that includes it was removed")
	}
}

func wildcardForeignNameLeft(s *scene) {
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
}

func wildcardEds(s *scene) {
	for _, names := range [][]string{nil, {client.Star}} {
		p := s.open()
		p.subscribe(client.EDS, names...)
		p.subscribe(client.CDS)
		p.has(client.CDS, s.cluster("a"))
		p.subscribe(client.EDS, s.cluster("a"))
		p.at("a", "10.1.0.1")
	}
}

// beside opens a stream that sees fences in its routes and assignments, whatever becomes of its clusters and listeners.
func (s *scene) beside() *peer {
	s.Helper()
	p := s.open()
	p.subscribe(client.EDS, s.fenceCluster())
	p.subscribe(client.RDS, fenceRoute)
	p.has(client.RDS, fenceRoute)
	return p
}

// The newcomer is a service that shows in clusters and in listeners. It goes again for the next one to come.
const listenerNew = "240.240.0.90_9000"

func (s *scene) newcomer() string {
	return s.service(service{name: "new", ports: httpPort + ", " + tcpPort, vip: "240.240.0.90"})
}

// newcomerComes checks that a new service comes to a peer that asks for everything.
func (s *scene) newcomerComes(p *peer) {
	s.Helper()
	s.put("new.yaml", s.newcomer())
	for _, t := range []client.Type{client.CDS, client.LDS} {
		if p.Covers(t, "") {
			p.has(t, map[client.Type]string{client.CDS: s.cluster("new"), client.LDS: listenerNew}[t])
		}
	}
	s.remove("new.yaml")
	p.awaitGone(client.CDS, s.cluster("new"))
	p.awaitGone(client.LDS, listenerNew)
}

// newcomerStaysAway checks that a new service does not come.
func (s *scene) newcomerStaysAway(p *peer) {
	s.Helper()
	s.fence(p)
	mark := len(p.Log)
	s.put("new.yaml", s.newcomer())
	s.fence(p)
	for _, r := range p.Log[mark:] {
		if r.Get(s.cluster("new")) != nil || r.Get(listenerNew) != nil {
			s.Errorf("what was not asked for came: %s", r)
		}
	}
	s.remove("new.yaml")
	s.gone(client.CDS, s.cluster("new"))
}
