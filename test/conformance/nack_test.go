package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// poison is something a client may reject: one resource in several editions.
type poison struct {
	typ  client.Type
	name string
	// write makes an edition what the configuration says.
	write func(edition int)
	// is reports whether a resource is of an edition.
	is func(r *client.Resource, edition int) bool
}

// bad is the edition that is rejected.
const bad = 66

// poisons has one for each type.
func (s *scene) poisons() []poison {
	in := func(r *client.Resource, text string) bool { return bytes.Contains(r.Body, []byte(text)) }
	return []poison{
		{client.CDS, s.cluster("a"), func(n int) { s.put("policy.yaml", s.policy("a", 100+n)) },
			func(r *client.Resource, n int) bool { return connections(r) == 100+n }},
		{client.EDS, s.cluster("b"), func(n int) { s.put(fileServices, s.a("10.1.0.1"), s.b(fmt.Sprintf("10.6.6.%d", n))) },
			func(r *client.Resource, n int) bool {
				return slices.Equal(addresses(r), []string{fmt.Sprintf("10.6.6.%d", n)})
			}},
		{client.LDS, listenerT, func(n int) {
			s.put(fileTCP, s.service(service{name: "t", host: s.host(fmt.Sprintf("t%d", n)), ports: tcpPort, vip: vipT}))
		}, func(r *client.Resource, n int) bool { return in(r, s.host(fmt.Sprintf("t%d", n))) }},
		{client.RDS, routeHTTP, func(n int) { s.put("edit.yaml", s.routes("a", fmt.Sprintf("edition-%d", n), "w")) },
			func(r *client.Resource, n int) bool { return in(r, fmt.Sprintf("/edition-%d/", n)) }},
	}
}

// of reports whether a response holds an edition.
func (x poison) of(r *client.Response, edition int) bool {
	res := r.Get(x.name)
	return r.Known && r.Type == x.typ && res != nil && x.is(res, edition)
}

// taken waits until a peer has an edition.
func (x poison) taken(p *peer, edition int) {
	p.s.Helper()
	p.await(fmt.Sprintf("edition %d of %s %q", edition, x.typ, x.name), func() bool {
		r := p.Get(x.typ, x.name)
		return r != nil && x.is(r, edition)
	})
}

// poisoned connects a peer that behaves as Envoy does except that it rejects the bad edition, which is written, and returns
// when it has been rejected. The peer has edition 1.
func (s *scene) poisoned(x poison) *peer {
	s.Helper()
	x.write(1)
	p := s.connect(answers(func(r *client.Response) client.Answer {
		if x.of(r, bad) {
			return client.Nack
		}
		return client.Ack
	}))
	x.taken(p, 1)
	s.fence(p)
	x.write(bad)
	p.await("the bad edition to be rejected", func() bool {
		return slices.ContainsFunc(p.Log, func(r *client.Response) bool { return x.of(r, bad) })
	})
	return p
}

// nackRules: what a client refuses stays between it and the server.
func nackRules() []rule {
	each := func(run func(*scene, poison)) func(*scene) {
		return func(s *scene) {
			for _, x := range s.poisons() {
				run(s, x)
			}
		}
	}
	return []rule{
		// The rejection itself brings nothing, and later changes do not bring the rejected resource either.
		{name: "no-resend", run: each(nackNoResend)},
		{name: "later-good", run: each(func(s *scene, x poison) {
			p := s.poisoned(x)
			x.write(2)
			x.taken(p, 2)
		})},
		// The user takes the rejected change back. The client has the edition accepted before, whether it is sent again or not.
		{name: "revert", run: each(nackRevert)},
		{name: "other-types", run: each(nackOtherTypes)},
		{name: "other-streams", run: each(nackOtherStreams)},
		{name: "newcomer", run: each(func(s *scene, x poison) {
			s.poisoned(x)
			q := s.connect()
			x.taken(q, bad)
			s.fence(q)
			x.write(1)
		})},
		{name: "by-detail", only: onlySotW(), run: nackByDetail},
		{name: "with-subscription", only: onlyDelta(), run: nackWithSubscription},
		{name: "new-cluster", run: nackNewCluster},
		{name: "random", run: nackRandom},
		{name: "loop", run: nackLoop},
	}
}

func nackNoResend(s *scene, x poison) {
	p := s.poisoned(x)
	s.fence(p)
	s.fence(p)
	n := 0
	for _, r := range p.Log {
		if x.of(r, bad) {
			n++
		}
	}
	if n > 1 {
		s.Errorf("the rejected edition of %s %q was sent %d times", x.typ, x.name, n)
	}
}

func nackRevert(s *scene, x poison) {
	p := s.poisoned(x)
	x.write(1)
	s.fence(p)
	p.await("all it refers to", func() bool { return len(p.Loose()) == 0 })
	if r := p.Get(x.typ, x.name); r == nil || !x.is(r, 1) {
		s.Errorf("after a rejection and a return %s %q is not what it was", x.typ, x.name)
	}
	s.sameContent("a client that rejected and a new one", p, s.connect())
	x.write(3)
	x.taken(p, 3)
}

func nackOtherTypes(s *scene, x poison) {
	p := s.poisoned(x)
	for _, other := range s.poisons() {
		if other.typ != x.typ {
			other.write(5)
			other.taken(p, 5)
		}
	}
	s.fence(p) // and the same type is updated, too
	for _, other := range s.poisons() {
		other.write(1)
	}
}

func nackOtherStreams(s *scene, x poison) {
	q := s.connect()
	s.poisoned(x)
	x.taken(q, bad)
	x.write(2)
	x.taken(q, 2)
	s.fence(q)
}

func nackByDetail(s *scene) {
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
}

// nackWithSubscription: a request may reject a response and ask for more.
func nackWithSubscription(s *scene) {
	refused := func(r *client.Resource) bool { return slices.Contains(addresses(r), "10.6.6.6") }
	p := s.open(answers(func(r *client.Response) client.Answer {
		if r.Type == client.EDS && slices.ContainsFunc(r.Resources, refused) {
			return client.Hold
		}
		return client.Ack
	}))
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.at("a", "10.1.0.1")
	s.put(fileServices, s.a("10.6.6.6"), s.b("10.1.0.2"))
	p.at("a", "10.6.6.6")
	p.Note(client.EDS, s.cluster("b"))
	p.send(client.Request{
		URL: client.EDS.URL(), Nonce: p.Nonce(client.EDS), Reason: "rejected by the test: " + s.cluster("a"),
		Subscribe: []string{s.cluster("b")},
	})
	p.nextWith(0, client.EDS, s.cluster("b"))
}

// nackNewCluster: a client that refuses a new cluster is not sent resources that use it.
func nackNewCluster(s *scene) {
	p := s.connect(answers(func(r *client.Response) client.Answer {
		if r.Type == client.CDS && slices.ContainsFunc(r.Resources, func(res *client.Resource) bool { return strings.Contains(res.Name, "|poison-") }) {
			return client.Nack
		}
		return client.Ack
	}))
	s.put("poison.yaml", s.service(service{name: "poison-http"}), s.service(service{name: "poison-tcp", ports: tcpPort, vip: "240.240.0.66"}), s.routes("a", "tag", "poison-http"))
	p.await("the cluster to be rejected", func() bool {
		return slices.ContainsFunc(p.Log, func(r *client.Response) bool { return r.Answer == client.Nack })
	})
	s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.12"), s.routes("b", "other", "a"))
	p.at("b", "10.1.0.12")
	p.routed("other")
	s.fence(p)
	for _, l := range p.Loose() {
		s.Error(l)
	}
	other := s.connect()
	s.remove("poison.yaml")
	// A removed file counts a little longer while other files are written, so a fence may come before the removal.
	other.await("the clusters to go", func() bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(content(other, client.CDS))), func(n string) bool { return strings.Contains(n, "|poison-") })
	})
	s.fence(p)
	p.await("all it refers to", func() bool { return len(p.Loose()) == 0 })
	s.sameContent("a client that rejected and a new one", p, s.connect())
}

// nackLoop: a client that rejects everything is not sent the same again and again.
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
