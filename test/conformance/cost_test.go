package conformance

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// costRules: what did not change is not sent.
func costRules() []rule {
	nothing := func(edit func(*scene)) func(*scene) {
		return func(s *scene) {
			p := s.all()
			s.quiet(p, "an edit that means nothing", func() { edit(s) })
			s.quiet(p, "the same on a stream that followed", func() { edit(s) })
		}
	}
	return []rule{
		{name: "endpoint-workload", run: costEndpointWorkload},
		{name: "endpoint-inline", run: costEndpointInline},
		{name: "rewrite", run: nothing(func(s *scene) {
			text, err := os.ReadFile(s.path(fileServices))
			s.must(err)
			s.must(os.WriteFile(s.path(fileServices), text, 0o644)) // in place, as an editor may
			s.put(fileServices, string(text))
		})},
		{name: "touch", run: nothing(func(s *scene) {
			now := time.Now()
			s.must(os.Chtimes(s.path(fileServices), now, now))
		})},
		{name: "annotation", run: costAnnotation},
		{name: "reorder", run: func(s *scene) {
			p := s.all()
			s.quiet(p, "another order of documents", func() { s.put(fileServices, s.b("10.1.0.2"), s.a("10.1.0.1")) })
			s.quiet(p, "the old order of documents", func() { s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2")) })
		}},
		{name: "stray-file", run: nothing(func(s *scene) {
			for _, name := range []string{"README.md", "notes.txt", ".hidden.yaml", "backup.yaml~", ".services.yaml.swp", "empty.yaml"} {
				text := s.a("10.9.9.9")
				if name == "empty.yaml" {
					text = "# nothing\n"
				}
				s.server.write(s.ns+"/"+name, text)
			}
		})},
		{name: "private", run: costPrivate},
		{name: "unused-rule", run: func(s *scene) {
			p := s.all()
			s.quiet(p, "a rule for nobody", func() { s.put("policy.yaml", s.policy("nobody", 3, "v1")) })
			s.quiet(p, "another rule for nobody", func() { s.put("policy.yaml", s.policy("nobody", 4, "v2")) })
		}},
		{name: "cluster", only: onlyDelta(), run: costCluster},
		{name: "listener", only: onlyDelta(), run: costListener},
		{name: "route", run: costRoute},
		{name: "policy", run: func(s *scene) {
			p := s.all()
			s.brings(p, map[client.Type][]string{client.CDS: {s.cluster("a")}, client.EDS: {s.cluster("a")}}, func() {
				s.put("policy.yaml", s.policy("a", 3))
				p.limited("a", 3)
			})
		}},
		{name: "burst", wish: true, run: func(s *scene) { s.burst(10 * time.Millisecond) }},
		{name: "burst-at-once", run: func(s *scene) { s.burst(0) }},
	}
}

func costEndpointWorkload(s *scene) {
	p := s.all()
	s.brings(p, map[client.Type][]string{client.EDS: {s.cluster("w")}}, func() {
		s.put(fileWorkloads, s.service(service{name: "w", selects: "w"}), s.workload("w-1", "w", "10.1.0.5"))
		p.at("w", "10.1.0.5")
	})
}

func costEndpointInline(s *scene) {
	p := s.all()
	s.brings(p, map[client.Type][]string{client.EDS: {s.cluster("a")}}, func() {
		s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"))
		p.at("a", "10.1.0.11")
	})
}

func costRoute(s *scene) {
	p := s.all()
	s.brings(p, map[client.Type][]string{client.RDS: {routeHTTP}}, func() {
		s.put("edit.yaml", s.routes("a", "tag", "b"))
		p.routed("tag")
	})
}

func costAnnotation(s *scene) {
	p := s.all()
	for _, text := range []string{"one", "two"} {
		s.quiet(p, "an annotation", func() {
			annotated := strings.Replace(s.a("10.1.0.1"), "metadata: {", "metadata: {annotations: {note: "+text+"}, ", 1)
			s.put(fileServices, annotated, s.b("10.1.0.2"))
		})
	}
}

func costPrivate(s *scene) {
	p := s.all()
	s.quiet(p, "what only another namespace can see", func() {
		other := s.ns + "-2"
		s.put("theirs.yaml", s.service(service{name: "theirs", namespace: other}),
			s.service(service{name: "tcp", namespace: other, ports: tcpPort, vip: "240.240.0.9"}))
		q := s.open(in(other))
		q.subscribe(client.CDS)
		q.has(client.CDS, "outbound|80||theirs."+other+".test")
	})
}

func costCluster(s *scene) {
	p := s.all()
	e := s.effects(p, func() {
		s.put("new.yaml", s.service(service{name: "new"}))
		p.has(client.CDS, s.cluster("new"))
	})
	s.sameNames("clusters sent", union(e[client.CDS].Put, e[client.CDS].Again), []string{s.cluster("new")})
}

func costListener(s *scene) {
	p := s.all()
	e := s.effects(p, func() {
		s.put("new.yaml", s.service(service{name: "new", ports: tcpPort, vip: "240.240.0.9"}))
		p.has(client.LDS, "240.240.0.9_9000")
	})
	s.sameNames("listeners sent", union(e[client.LDS].Put, e[client.LDS].Again), []string{"240.240.0.9_9000"})
}

// brings checks that act brings resources of some types, one response for each, and nothing else.
func (s *scene) brings(p *peer, want map[client.Type][]string, act func()) {
	s.Helper()
	got := s.effects(p, act)
	for _, t := range client.All() {
		e := got[t]
		s.sameNames(t.String()+" sent", union(union(e.Put, e.Again), e.Gone), want[t])
		if e.Responses > 1 {
			s.Errorf("%d %s responses for one edit", e.Responses, t)
		}
	}
}

// burst makes a hundred edits in all types and counts what comes of it.
func (s *scene) burst(pause time.Duration) {
	const edits, most = 100, 12
	p := s.all()
	s.fence(p)
	var staged []string // so that an edit is no more than a rename
	for i := range edits {
		staged = append(staged, s.server.stage(s.a(s.fenceAddress(i)), s.b("10.1.0.2"), s.policy("a", 3+i), s.routes("a", fmt.Sprintf("tag-%d", i), "b")))
	}
	mark := len(p.Log)
	tick := time.NewTicker(max(pause, time.Nanosecond))
	defer tick.Stop()
	for i := range edits {
		if pause > 0 {
			<-tick.C
		}
		s.must(os.Rename(staged[i], s.path(fileServices)))
		s.must(p.Poll())
	}
	p.limited("a", 3+edits-1)
	p.routed(fmt.Sprintf("tag-%d", edits-1))
	s.must(p.Poll())
	var count [client.Types]int
	for _, r := range p.Log[mark:] {
		count[r.Type]++
	}
	for _, t := range client.All() {
		if count[t] > most {
			s.Errorf("%d edits became %d %s responses, want at most %d", edits, count[t], t, most)
		}
	}
}
