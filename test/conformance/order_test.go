package conformance

import (
	"slices"
	"time"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// orderRules: no resource sent points at a resource that the client does not have yet, or any more. Peers that follow check that after every response
// (see client.Client), so these rules provoke gaps.
func orderRules() []rule {
	return []rule{
		{name: "connect", run: func(s *scene) {
			p := s.open()
			p.askAll()
			p.awaitBase()
			first := firsts(p.Log)
			if first[client.CDS] > first[client.EDS] || first[client.LDS] > first[client.RDS] {
				s.Errorf("first responses: CDS %d, EDS %d, LDS %d, RDS %d", first[client.CDS], first[client.EDS], first[client.LDS], first[client.RDS])
			}
		}},
		{name: "sequence", run: orderSequence},
		{name: "endpoints-after-cluster", run: orderEndpointsAfterCluster},
		{name: "make-before-break", run: func(s *scene) {
			p := s.connect()
			for _, tag := range []string{"one", "two", "three"} {
				s.put("new.yaml", s.service(service{name: "new-" + tag}), s.routes("a", tag, "new-"+tag))
				p.routed(tag)
				p.has(client.CDS, s.cluster("new-"+tag))
			}
			s.fence(p)
		}},
		{name: "make-subset", run: func(s *scene) {
			p := s.connect()
			for _, v := range []string{"v1", "v2", "v3"} {
				s.put("new.yaml", s.policy("a", 3, v), s.routes("a", v, "a/"+v))
				p.routed(v)
				p.has(client.CDS, s.subset("a", v))
			}
			s.fence(p)
		}},
		{name: "break-last", run: orderBreakLast},
		{name: "service-deleted", run: orderServiceDeleted},
		{name: "swap", run: orderSwap},
		{name: "waits-for-ack", wish: true, run: orderWaitsForAck},
		{name: "stuck-client", wish: true, run: orderStuckClient},
		{name: "withheld", run: orderWithheld},
		{name: "rejected-late", run: orderRejectedLate},
	}
}

func orderSequence(s *scene) {
	p := s.connect()
	for range 3 {
		s.fence(p)
		mark := len(p.Log)
		s.fences++
		s.writeFence()
		p.await("all of a change", func() bool {
			return !slices.ContainsFunc(s.visible(p), func(t client.Type) bool { return !s.fenced(p, t) })
		})
		first := firsts(p.Log[mark:])
		if !slices.IsSorted(first[:]) {
			s.Errorf("first responses after a change: CDS %d, EDS %d, LDS %d, RDS %d", first[client.CDS], first[client.EDS], first[client.LDS], first[client.RDS])
		}
	}
}

func orderEndpointsAfterCluster(s *scene) {
	p := s.connect()
	s.fence(p)
	mark := len(p.Log)
	s.put("policy.yaml", s.policy("a", 3))
	p.limited("a", 3)
	p.settleClusters()
	cluster, assignment := p.find(mark, client.CDS, s.cluster("a")), p.find(mark, client.EDS, s.cluster("a"))
	if assignment == nil || assignment.Index < cluster.Index {
		s.Error("the assignment came before the cluster")
	}
}

func orderBreakLast(s *scene) {
	s.put("new.yaml", s.policy("a", 3, "v1", "v2"), s.routes("a", "two", "a/v2"))
	p := s.connect()
	p.routed("two")
	mark := len(p.Log)
	s.put("new.yaml", s.policy("a", 3, "v1"), s.routes("a", "one", "a/v1"))
	p.routed("one")
	p.awaitGone(client.CDS, s.subset("a", "v2"))
	s.goneAfter(p, mark, client.CDS, s.subset("a", "v2"), client.RDS, routeHTTP)
}

func orderServiceDeleted(s *scene) {
	p := s.connect()
	s.fence(p)
	mark := len(p.Log)
	s.put(fileServices, s.a("10.1.0.1"))
	s.remove(fileTCP)
	p.awaitGone(client.CDS, s.cluster("b"), s.port("t", 9000, ""))
	p.awaitGone(client.LDS, listenerT)
	p.await("the virtual host to go", func() bool { return !p.mentions(client.RDS, routeHTTP, s.host("b")) })
	s.goneAfter(p, mark, client.CDS, s.cluster("b"), client.RDS, routeHTTP)
	s.goneAfter(p, mark, client.CDS, s.port("t", 9000, ""), client.LDS, listenerT)
}

func orderSwap(s *scene) {
	s.put("new.yaml", s.service(service{name: "x1"}), s.routes("a", "x1", "x1"))
	p := s.connect()
	p.routed("x1")
	for i := range 4 {
		name := []string{"x2", "x1"}[i%2]
		s.put("new.yaml", s.service(service{name: name}), s.routes("a", name, name))
		p.routed(name)
		p.awaitGone(client.CDS, s.cluster([]string{"x1", "x2"}[i%2]))
	}
	s.fence(p)
}

func orderStuckClient(s *scene) {
	p := s.open(answers(func(r *client.Response) client.Answer {
		if r.Type == client.CDS {
			return client.Hold
		}
		return client.Ack
	}))
	p.askAll()
	p.awaitBase()
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"))
	p.at("a", "10.1.0.11")
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("b", 3))
	s.settled("b", 3)
	s.put(fileServices, s.a("10.1.0.12"), s.b("10.1.0.2"), s.policy("b", 3))
	p.at("a", "10.1.0.12")
}

// firsts are the places of the first response of each type.
func firsts(log []*client.Response) [client.Types]int {
	first := [client.Types]int{-1, -1, -1, -1}
	for i, r := range log {
		if r.Known && first[r.Type] < 0 {
			first[r.Type] = i
		}
	}
	return first
}

// goneAfter checks that one resource went after another one changed or went.
func (s *scene) goneAfter(p *peer, mark int, t client.Type, name string, before client.Type, other string) {
	s.Helper()
	when := func(t client.Type, name string, gone bool) int {
		for _, r := range p.Log[mark:] {
			if r.Type == t && (slices.Contains(r.Gone, name) || !gone && slices.Contains(r.Put, name)) {
				return r.Index
			}
		}
		s.Fatalf("%s %q neither changed nor went", t, name)
		return 0
	}
	if g, c := when(t, name, true), when(before, other, false); g < c {
		s.Errorf("%s %q went with response %d, before %s %q followed with response %d", t, name, g, before, other, c)
	}
}

// holds makes a peer that keeps its answers of a type to itself while hold says so.
func holds(t client.Type, hold *bool) option {
	return answers(func(r *client.Response) client.Answer {
		if *hold && r.Type == t {
			return client.Hold
		}
		return client.Ack
	})
}

// withholding is a client that has everything, and from now on keeps its answers about clusters to itself while hold is true.
func (s *scene) withholding(hold *bool) *peer {
	s.Helper()
	p := s.open(holds(client.CDS, hold))
	p.askAll()
	p.awaitBase()
	s.fence(p)
	*hold = true
	return p
}

// bound is how long the server waits for an acknowledgement, less what a busy machine may take to notice.
const bound = 300 * time.Millisecond

// orderWaitsForAck: the cluster is on its way, the route to it has to wait.
func orderWaitsForAck(s *scene) {
	hold := false
	p := s.withholding(&hold)
	s.put("new.yaml", s.service(service{name: "new"}), s.routes("a", "tag", "new"))
	p.has(client.CDS, s.cluster("new"))
	came := time.Now()
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2")) // the stream stays in use
	p.at("a", "10.1.0.11")
	if early := p.mentions(client.RDS, routeHTTP, s.host("new")); early && time.Since(came) < bound {
		s.Error("the route came before the client acknowledged the cluster")
	}
	hold = false
	s.must(p.Acknowledge(p.last(client.CDS)))
	p.routed("tag")
}

// orderWithheld: a client keeps its answers about clusters to itself, as an Envoy does whose cluster does not warm. Edits of that time arrive; the
// server distinguishes the late answers.
func orderWithheld(s *scene) {
	hold := false
	p := s.withholding(&hold)
	s.put("stuck.yaml", s.service(service{name: "stuck"}))
	p.has(client.CDS, s.cluster("stuck"))
	first := p.last(client.CDS)
	s.put("new.yaml", s.service(service{name: "new"}), s.routes("a", "new", "new"))
	p.has(client.CDS, s.cluster("new"))
	p.routed("new")
	second := p.last(client.CDS)
	s.remove("stuck.yaml")
	p.awaitGone(client.CDS, s.cluster("stuck"))
	s.must(p.Acknowledge(first))
	s.must(p.Acknowledge(second))
	hold = false
	s.must(p.Acknowledge(p.last(client.CDS)))
	s.put("new.yaml", s.service(service{name: "newer"}), s.routes("a", "newer", "newer"))
	p.routed("newer")
	p.awaitGone(client.CDS, s.cluster("new"))
	s.fence(p)
}

// orderRejectedLate: the rejection of a response comes after newer state was sent.
func orderRejectedLate(s *scene) {
	hold := false
	p := s.withholding(&hold)
	s.put("bad.yaml", s.service(service{name: "bad"}))
	p.has(client.CDS, s.cluster("bad"))
	bad := p.last(client.CDS)
	s.put("new.yaml", s.service(service{name: "new"}))
	p.has(client.CDS, s.cluster("new"))
	hold = false
	next := p.last(client.CDS)
	s.must(p.Reject(bad, "cluster "+s.cluster("bad")+" is bad"))
	s.must(p.Acknowledge(next))
	s.put("newer.yaml", s.service(service{name: "newer"}), s.routes("a", "newer", "newer"))
	p.has(client.CDS, s.cluster("newer"))
	p.routed("newer")
	s.fence(p)
}
