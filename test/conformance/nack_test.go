package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// nackRules: what a client refuses stays between it and the server.
func nackRules() []rule {
	return []rule{
		{name: "no-resend", run: nackNoResend},
		{name: "later-good", run: func(s *scene) {
			p := s.rejects(s.policy("a", 666), client.CDS, 666)
			s.put("policy.yaml", s.policy("a", 7))
			p.limited("a", 7)
		}},
		{name: "revert", run: nackRevert},
		{name: "other-types", run: func(s *scene) {
			p := s.rejects(s.policy("a", 666), client.CDS, 666)
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.routes("a", "tag", "b"))
			s.put(fileTCP, s.service(service{name: "t", ports: tcpPort, vip: "240.240.0.2"}))
			p.at("a", "10.1.0.11")
			p.routed("tag")
			p.has(client.LDS, "240.240.0.2_9000")
		}},
		{name: "other-streams", run: func(s *scene) {
			q := s.all()
			s.rejects(s.policy("a", 666), client.CDS, 666)
			q.limited("a", 666)
			s.put("policy.yaml", s.policy("a", 7))
			q.limited("a", 7)
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"))
			q.at("a", "10.1.0.11")
		}},
		{name: "newcomer", run: func(s *scene) {
			s.rejects(s.policy("a", 666), client.CDS, 666)
			q := s.all()
			q.limited("a", 666)
			s.fence(q)
		}},
		{name: "by-detail", only: onlySotW(), run: func(s *scene) {
			p := s.open()
			p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
			p.at("a", "10.1.0.1")
			old := p.Accepted(client.EDS)
			s.fence(p)
			p.Note(client.EDS, s.cluster("b"))
			p.send(client.Request{
				URL: client.EDS.URL(), Nonce: p.Nonce(client.EDS), Version: old,
				Names: []string{s.cluster("a"), s.fenceCluster(), s.cluster("b")},
			})
			p.nextWith(0, client.EDS, s.cluster("b"))
		}},
		{name: "with-subscription", only: onlyDelta(), run: func(s *scene) {
			p := s.open(answers(func(r *client.Response) client.Answer {
				if slices.ContainsFunc(r.Resources, func(res *client.Resource) bool { return at666(res) }) {
					return client.Hold
				}
				return client.Ack
			}))
			p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
			p.at("a", "10.1.0.1")
			s.put(fileServices, s.a("10.6.6.6"), s.b("10.1.0.2"))
			p.at("a", "10.6.6.6")
			p.Note(client.EDS, s.cluster("b"))
			p.send(client.Request{URL: client.EDS.URL(), Nonce: p.Nonce(client.EDS), Reason: "rejected by the test: " + s.cluster("a"), Subscribe: []string{s.cluster("b")}})
			p.nextWith(0, client.EDS, s.cluster("b"))
		}},
		{name: "loop", run: nackLoop},
	}
}

// at666 reports whether an assignment has the address that tests reject.
func at666(r *client.Resource) bool {
	return strings.HasPrefix(r.URL, client.EDS.URL()) && slices.Contains(addresses(r), "10.6.6.6")
}

// rejects connects a peer for everything, which rejects a policy with the given limit of connections for a, writes
// that policy, and returns when it has been rejected.
func (s *scene) rejects(document string, t client.Type, limit int) *peer {
	s.Helper()
	bad := func(r *client.Response) bool {
		res := r.Get(s.cluster("a"))
		return r.Known && r.Type == t && res != nil && connections(res) == limit
	}
	p := s.open(answers(func(r *client.Response) client.Answer {
		if bad(r) {
			return client.Nack
		}
		return client.Ack
	}))
	p.askAll()
	p.awaitBase()
	s.fence(p)
	s.put("policy.yaml", document)
	p.await("the policy to be rejected", func() bool { return slices.ContainsFunc(p.Log, bad) })
	return p
}

// nackNoResend: the rejection itself brings nothing, and later changes do not bring what was rejected either.
func nackNoResend(s *scene) {
	p := s.rejects(s.policy("a", 666), client.CDS, 666)
	mark := len(p.Log)
	rejected := p.last(client.CDS).Get(s.cluster("a"))
	for i := range 3 { // the stream goes on, with a type that has nothing to do with it
		address := []string{"10.1.0.11", "10.1.0.12", "10.1.0.13"}[i]
		s.put(fileServices, s.a("10.1.0.1"), s.b(address))
		p.at("b", address)
	}
	s.fence(p)
	for _, r := range p.Log[mark:] {
		if r.Known && r.Type == client.CDS && rejected.Same(r.Get(s.cluster("a"))) {
			s.Errorf("what was rejected was sent again: %s", r)
		}
	}
}

// nackRevert: the user takes back what was rejected. The client has what it accepted before, whether it is sent again
// or not, and what comes after that.
func nackRevert(s *scene) {
	s.put("policy.yaml", s.policy("a", 5))
	s.settled("a", 5)
	p := s.rejects(s.policy("a", 666), client.CDS, 666)
	s.put("policy.yaml", s.policy("a", 5))
	s.fence(p)
	if got := p.connections(s.cluster("a")); got != 5 {
		s.Errorf("after a rejection and a return the client allows %d connections, want 5", got)
	}
	s.sameContent("a client that rejected and a new one", p, s.all())
	s.put("policy.yaml", s.policy("a", 6))
	p.limited("a", 6)
}

// nackLoop: who rejects everything is not told the same again and again.
func nackLoop(s *scene) {
	healthy := s.all()
	p := s.open(answers(func(*client.Response) client.Answer { return client.Nack }))
	p.askAll()
	count := func() int {
		s.fence(healthy)
		s.must(p.Poll())
		return len(p.Log)
	}
	// As time passes without any change, the number of responses does not grow.
	p.await("first responses", func() bool { return len(p.Log) >= 1 })
	const most = 4 * 10
	before := count()
	quiet := time.NewTimer(300 * time.Millisecond)
	<-quiet.C
	after := count()
	if after > most {
		s.Errorf("a client that rejects everything was sent %d responses", after)
	}
	if after-before > 4*4 { // what fences and stragglers may bring
		s.Errorf("a client that rejects everything was sent %d more responses in 300 ms without a change but two fences", after-before)
	}
	const edits = 20
	for i := range edits {
		s.put(fileServices, s.a("10.1.1."+string(rune('1'+i%9))), s.b("10.1.0.2"), s.routes("a", "tag-"+string(rune('a'+i)), "b"))
		s.fence(healthy)
	}
	s.must(p.Poll())
	// Every edit and its fences are five changes, which may be offered once each in four types.
	if n := len(p.Log) - after; n > edits*5*4 {
		s.Errorf("%d edits brought a client that rejects everything %d responses", edits, n)
	}
}
