package conformance

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// nonceRules: responses and what answers them belong together.
func nonceRules() []rule {
	return []rule{
		// That every response has a nonce of its own is checked in every test; here there are many.
		{name: "present", run: func(s *scene) {
			p := s.connect(everyNode)
			s.fence(p)
			if len(p.Log) < 8 {
				s.Errorf("only %d responses: nothing was tried", len(p.Log))
			}
		}},
		{name: "ack-quiet", run: func(s *scene) {
			p := s.all()
			s.quiet(p, "acknowledging everything", func() {})
		}},
		{name: "ack-twice", run: nonceAckTwice},
		{name: "stale-ignored", only: onlySotW(), run: nonceStaleIgnored},
		{name: "stale-wildcard", run: nonceStaleWildcard},
		{name: "stale-subscription", only: onlyDelta(), run: nonceStaleSubscription},
		{name: "spontaneous", only: onlyDelta(), run: func(s *scene) {
			p := s.open(answers(func(*client.Response) client.Answer { return client.Hold }))
			p.subscribe(client.EDS, s.cluster("a"))
			p.at("a", "10.1.0.1")
			p.subscribe(client.EDS, s.cluster("b"))
			p.at("b", "10.1.0.2")
		}},
		{name: "forged", run: func(s *scene) {
			p := s.all()
			s.fence(p)
			s.survives(p, "a forged nonce", func() { p.acknowledgeAs(client.CDS, "forged", p.Accepted(client.CDS)) })
		}},
		{name: "other-type", run: nonceOtherType},
		{name: "of-old-stream", run: nonceOfOldStream},
		{name: "version-of-old-stream", only: onlySotW(), run: nonceVersionOfOldStream},
		{name: "unacked-update", run: nonceUnackedUpdate},
	}
}

func nonceAckTwice(s *scene) {
	p := s.all()
	s.fence(p)
	s.quiet(p, "acknowledging everything again", func() {
		for _, t := range client.All() {
			for range 2 {
				p.acknowledgeAs(t, p.Nonce(t), p.Accepted(t))
			}
		}
	})
}

func nonceStaleWildcard(s *scene) {
	p := s.all()
	var old [client.Types]*client.Response
	for _, t := range client.All() {
		old[t] = p.last(t)
	}
	s.fence(p)
	s.quiet(p, "late acknowledgements", func() {
		for _, t := range client.All() {
			p.acknowledgeAs(t, old[t].Nonce, old[t].Version)
		}
	})
}

func nonceStaleSubscription(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.at("a", "10.1.0.1")
	old := p.last(client.EDS)
	s.fence(p)
	p.Note(client.EDS, s.cluster("b"))
	p.send(client.Request{URL: client.EDS.URL(), Nonce: old.Nonce, Subscribe: []string{s.cluster("b")}})
	p.nextWith(0, client.EDS, s.cluster("b"))
}

func nonceOtherType(s *scene) {
	p := s.all()
	s.fence(p)
	s.survives(p, "the nonce of another type", func() {
		p.acknowledgeAs(client.EDS, p.Nonce(client.CDS), p.Accepted(client.EDS))
		p.acknowledgeAs(client.CDS, p.Nonce(client.EDS), p.Accepted(client.CDS))
	})
}

func nonceVersionOfOldStream(s *scene) {
	old := s.open()
	old.subscribe(client.EDS, s.cluster("a"))
	old.at("a", "10.1.0.1")
	p := s.open()
	p.Note(client.EDS, s.cluster("b"))
	p.send(client.Request{URL: client.EDS.URL(), Names: []string{s.cluster("b")}, Version: old.Accepted(client.EDS)})
	p.nextWith(0, client.EDS, s.cluster("b"))
}

// acknowledgeAs sends an acknowledgement with any nonce.
func (p *peer) acknowledgeAs(t client.Type, nonce, version string) {
	p.s.Helper()
	r := client.Request{URL: t.URL(), Nonce: nonce}
	if p.Variant == client.SotW {
		r.Names, _ = p.Asked(t)
		r.Version = version
	}
	p.send(r)
}

// survives checks that act is ignored, or that the stream is refused cleanly; a newcomer is served in any case.
func (s *scene) survives(p *peer, what string, act func()) {
	s.Helper()
	act()
	s.fences++
	s.writeFence()
	ctx, cancel := within(patience)
	defer cancel()
	err := p.Await(ctx, func() bool { return s.fenced(p, client.CDS) && s.fenced(p, client.EDS) })
	switch {
	case err == nil:
	case ended(err):
		s.clean(what, p)
	default:
		s.Errorf("after %s: no fence comes and the stream does not end: %v", what, err)
	}
	s.all()
}

// clean checks that a stream that has ended was refused, with a status that says why, and not broken.
func (s *scene) clean(what string, p *peer) {
	s.Helper()
	ctx, cancel := within(patience)
	defer cancel()
	why, err := p.End(ctx)
	if err != nil {
		s.Errorf("after %s: %v", what, err)
		return
	}
	st, _ := status.FromError(why)
	refusals := []codes.Code{
		codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.PermissionDenied,
		codes.Unauthenticated, codes.ResourceExhausted, codes.NotFound,
	}
	if !slices.Contains(refusals, st.Code()) || st.Message() == "" {
		s.Errorf("after %s the stream ended with %s %q: that is no clean refusal", what, st.Code(), st.Message())
	}
}

// nonceStaleIgnored: the list of names in a request counts only if the client had seen the last response.
func nonceStaleIgnored(s *scene) {
	p := s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.at("a", "10.1.0.1")
	stale := p.last(client.EDS)
	s.fence(p)
	names := []string{s.cluster("a"), s.fenceCluster(), s.cluster("b")}
	mark := len(p.Log)
	p.send(client.Request{URL: client.EDS.URL(), Names: names, Version: stale.Version, Nonce: stale.Nonce})
	s.fence(p)
	if r := p.find(mark, client.EDS, s.cluster("b")); r != nil {
		s.Errorf("a request with a stale nonce was answered: %s", r)
	}
	p.subscribe(client.EDS, s.cluster("b"))
	p.at("b", "10.1.0.2")
}

func nonceOfOldStream(s *scene) {
	old := s.all()
	old.leave()
	p := s.open()
	for _, t := range client.All() {
		r := client.Request{URL: t.URL(), Nonce: old.Nonce(t)}
		names, _ := old.Asked(t)
		if s.variant == client.SotW {
			r.Names, r.Version = names, old.Accepted(t)
		} else {
			r.Subscribe = names
		}
		p.Note(t, names...)
		p.send(r)
	}
	p.awaitBase()
}

// nonceUnackedUpdate: what changes while a response is not acknowledged comes in the end.
func nonceUnackedUpdate(s *scene) {
	hold := false
	p := s.open(answers(func(*client.Response) client.Answer {
		if hold {
			return client.Hold
		}
		return client.Ack
	}))
	p.askAll()
	p.awaitBase()
	s.fence(p)
	hold = true
	edit := func(n int) {
		s.put(fileServices, s.a(fmt.Sprintf("10.1.0.%d", n)), s.b("10.1.0.2"), s.policy("a", n), s.routes("a", fmt.Sprintf("tag%d", n), "b"),
			s.service(service{name: "u", host: s.host(fmt.Sprintf("u%d", n)), ports: tcpPort, vip: "240.240.0.8"}))
	}
	edit(11)
	p.limited("a", 11)
	p.at("a", "10.1.0.11")
	edit(12)
	edit(13)
	s.settled("a", 13)
	hold = false
	for _, t := range client.All() {
		s.must(p.Acknowledge(p.last(t)))
	}
	p.limited("a", 13)
	p.at("a", "10.1.0.13")
	p.routed("tag13")
	p.await("the listener to follow", func() bool { return p.mentions(client.LDS, "240.240.0.8_9000", s.host("u13")) })
}
