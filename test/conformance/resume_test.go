package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// resumeRules: a client that comes back states its versions, and gets the difference.
func resumeRules() []rule {
	var rules []rule
	add := func(name string, wish bool, run func(*scene, client.Type)) {
		for _, t := range client.All() {
			rules = append(rules, rule{
				name: name + "-" + strings.ToLower(t.String()), only: onlyDelta(), wish: wish,
				run: func(s *scene) { run(s, t) },
			})
		}
	}
	add("unchanged", true, resumeUnchanged)
	add("changed", false, resumeChanged)
	add("vanished", false, resumeVanished)
	add("wrong-version", false, resumeWrongVersion)
	return append(rules,
		rule{name: "never-was", only: onlyDelta(), run: func(s *scene) {
			old := s.all()
			ghost := s.port("ghost", 80, "")
			p := s.open()
			have := old.Versions(client.CDS)
			have[ghost] = "1"
			s.must(p.Resume(client.CDS, have))
			if r := p.nextWith(0, client.CDS, ghost); !slices.Contains(r.Removed, ghost) {
				s.Errorf("a cluster that never was is not removed: %s", r)
			}
		}},
		rule{name: "goes-on", only: onlyDelta(), run: resumeGoesOn},
		rule{name: "star", only: onlyDelta(), wish: true, run: func(s *scene) {
			old := s.all()
			old.leave()
			p := s.open()
			for _, t := range []client.Type{client.CDS, client.LDS} {
				p.Adopt(t, old.Held(t))
				s.must(p.Resume(t, old.Versions(t), client.Star))
			}
			s.nothingNew(p, client.CDS)
			s.nothingNew(p, client.LDS)
		}},
		rule{name: "big", only: onlyDelta(), run: resumeBig},
		rule{name: "restart", only: onlyDelta(), wish: true, own: true, run: func(s *scene) {
			old := s.all()
			s.server.Stop()
			old.leave()
			s.server.start()
			p := s.resumed(old)
			for _, t := range client.All() {
				s.nothingNew(p, t)
			}
		}},
	)
}

func resumeGoesOn(s *scene) {
	p := s.resumed(s.all())
	s.resumeEdit()
	s.put("new.yaml", s.service(service{name: "u", ports: tcpPort, vip: "240.240.0.2"}))
	p.at("a", "10.1.0.11")
	p.limited("a", 3)
	p.routed("tag")
	p.has(client.LDS, "240.240.0.2_9000")
	s.remove("new.yaml")
	p.awaitGone(client.LDS, "240.240.0.2_9000")
	s.fence(p)
	if !s.toT2(p) {
		s.Error("the listener did not follow")
	}
	s.sameContent("a resumed stream and a new one", p, s.all())
}

// resumed opens a stream that continues where another one ended.
func (s *scene) resumed(old *peer) *peer {
	s.Helper()
	old.leave()
	p := s.open()
	for _, t := range client.All() {
		s.resume(p, old, t, old.Versions(t))
	}
	return p
}

// resume asks for a type as after an earlier stream, which had the given versions.
func (s *scene) resume(p, old *peer, t client.Type, versions map[string]string) {
	s.Helper()
	p.Adopt(t, old.Held(t))
	names, _ := old.Asked(t)
	s.must(p.Resume(t, versions, names...))
}

// nothingNew checks that a type brings only what a fence changes.
func (s *scene) nothingNew(p *peer, t client.Type) {
	s.Helper()
	s.fence(p)
	for _, r := range p.Log {
		if r.Known && r.Type == t {
			for _, n := range append(slices.Clone(r.Again), r.Put...) {
				if !s.ofFence(t, n) {
					s.Errorf("%s %q was sent although the client has it", t, n)
				}
			}
		}
	}
}

func resumeUnchanged(s *scene, t client.Type) {
	p := s.resumed(s.all())
	s.nothingNew(p, t)
}

// resumeEdit changes something in every type: a's cluster, assignment and routes, and t's listener.
func (s *scene) resumeEdit() {
	s.Helper()
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3), s.routes("a", "tag", "b"))
	s.put(fileTCP, s.service(service{name: "t", host: s.host("t2"), ports: tcpPort, vip: vipT}))
	s.settled("a", 3)
	s.probe(client.LDS, "the listener to be served", s.toT2)
}

// toT2 reports whether the TCP listener sends to the host it has after the edit.
func (s *scene) toT2(p *peer) bool { return p.mentions(client.LDS, listenerT, s.host("t2")) }

func resumeChanged(s *scene, t client.Type) {
	old := s.all()
	old.leave()
	s.resumeEdit()
	p := s.resumed(old)
	switch t {
	case client.CDS:
		p.limited("a", 3)
	case client.EDS:
		p.at("a", "10.1.0.11")
	case client.LDS:
		p.await("the listener to follow", func() bool { return s.toT2(p) })
	case client.RDS:
		p.routed("tag")
	}
}

func resumeVanished(s *scene, t client.Type) {
	s.put("c.yaml", s.eightyOne("one"))
	old := s.open()
	old.subscribe(client.CDS)
	old.subscribe(client.EDS, append(s.assignments(), s.port("c", 81, ""))...)
	old.subscribe(client.LDS)
	old.subscribe(client.RDS, routeHTTP, fenceRoute, "81")
	old.awaitBase()
	old.has(client.CDS, s.port("c", 81, ""))
	old.has(client.EDS, s.port("c", 81, ""))
	old.has(client.RDS, "81")
	old.leave()
	s.remove("c.yaml")
	s.remove(fileTCP)
	s.gone(client.CDS, s.port("c", 81, ""))
	s.gone(client.LDS, listenerT)
	p := s.resumed(old)
	switch t {
	case client.CDS:
		p.awaitGone(client.CDS, s.port("c", 81, ""))
	case client.EDS:
		p.await("the assignment to go", func() bool { return len(p.addresses(s.port("c", 81, ""))) == 0 })
	case client.LDS:
		p.awaitGone(client.LDS, listenerT)
	case client.RDS:
		p.await("the route to go", func() bool { return !p.mentions(client.RDS, "81", "/one/") })
	}
}

func resumeWrongVersion(s *scene, t client.Type) {
	old := s.all()
	old.leave()
	p := s.open()
	name := map[client.Type]string{client.CDS: s.cluster("a"), client.EDS: s.cluster("a"), client.LDS: listenerT, client.RDS: routeHTTP}[t]
	have := maps.Clone(old.Versions(t))
	have[name] = "another"
	s.resume(p, old, t, have)
	if r := p.nextWith(0, t, name); r.Get(name) == nil {
		s.Errorf("%s %q was removed", t, name)
	}
}

// resumeBig: a client that says that it has a hundred thousand clusters is served or refused, and no other client notices.
func resumeBig(s *scene) {
	bystander := s.all()
	p := s.open()
	have := map[string]string{}
	for i := range 100_000 {
		have[fmt.Sprintf("ghost-%d", i)] = "1"
	}
	s.must(p.Resume(client.CDS, have))
	s.fence(bystander)
	ctx, cancel := within(patience)
	defer cancel()
	err := p.Await(ctx, func() bool { return p.Get(client.CDS, s.cluster("a")) != nil })
	switch {
	case ended(err):
		s.clean("100,000 initial versions", p)
	case err != nil:
		s.Errorf("100,000 initial versions: neither served nor refused: %v", err)
	}
	s.fence(bystander)
}
