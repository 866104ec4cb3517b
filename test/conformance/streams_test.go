package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// streamsRules: streams do not mix, and equal ones are equal.
func streamsRules() []rule {
	return []rule{
		{name: "same-node", run: streamsSameNode},
		{name: "reconnect", run: func(s *scene) {
			for range 20 {
				p := s.open()
				p.subscribe(client.CDS)
				p.leave()
			}
			p := s.all()
			s.fence(p)
		}},
		{name: "equal-state", run: func(s *scene) {
			p, q := s.connect(), s.connect()
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3), s.routes("a", "tag", "b"))
			s.fence(p, q)
			for _, t := range client.All() {
				s.sameNames(t.String(), p.Names(t), q.Names(t))
			}
		}},
		{name: "equal-bytes", run: func(s *scene) {
			p, q, r := s.connect(), s.connect(), s.connect(as(node("other", s.ns)))
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3), s.routes("a", "tag", "b"))
			s.fence(p, q, r)
			s.sameContent("the first and the second client", p, q)
			s.sameContent("the first and the third client", p, r)
		}},
		{name: "equal-versions", run: func(s *scene) {
			p, q := s.all(), s.all()
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3), s.routes("a", "tag", "b"))
			s.fence(p, q)
			s.sameVersions("two streams", p, q)
		}},
		{name: "old-and-new", run: streamsOldAndNew},
		{name: "both-variants", only: onlyDelta(), run: func(s *scene) {
			p, q := s.connect(), s.connect(speaks(client.SotW))
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3, "v1"), s.routes("a", "tag", "a/v1"))
			s.fence(p, q)
			s.sameContent("delta and State-of-the-World", p, q)
		}},
		{name: "restart-bytes", own: true, run: func(s *scene) {
			p := s.restarted(s.connect)
			s.sameContent("before and after a restart", p[0], p[1])
		}},
		{name: "restart-versions", own: true, run: func(s *scene) {
			p := s.restarted(s.all)
			s.sameVersions("before and after a restart", p[0], p[1])
		}},
		{name: "file-layout", own: true, run: streamsFileLayout},
	}
}

func streamsOldAndNew(s *scene) {
	old := s.connect()
	for i := range 5 {
		s.put(fileServices, s.a(s.fenceAddress(i)), s.b("10.1.0.2"), s.policy("a", 3+i, fmt.Sprintf("v%d", i)), s.routes("a", fmt.Sprintf("tag%d", i), "b"))
		s.put(fileTCP, s.service(service{name: "t", ports: tcpPort, vip: s.fenceVIP(1000 + i)}))
		old.limited("a", 3+i)
	}
	s.remove(fileWorkloads)
	old.awaitGone(client.CDS, s.cluster("w"))
	s.fence(old)
	s.sameContent("an old stream and a new one", old, s.connect())
}

// sameVersions fails the test unless two peers that hold the same have it in the same versions.
func (s *scene) sameVersions(what string, p, q *peer) {
	s.Helper()
	s.sameContent(what, p, q)
	for _, t := range client.All() {
		if s.variant == client.Delta {
			s.sameMaps(fmt.Sprintf("%s: versions of %s", what, t), p.Versions(t), q.Versions(t))
		} else if p.Accepted(t) != q.Accepted(t) {
			s.Errorf("%s: %s has versions %q and %q", what, t, p.Accepted(t), q.Accepted(t))
		}
	}
}

// streamsSameNode: a client with the node of another one gets its own subscriptions.
func streamsSameNode(s *scene) {
	p, q := s.open(), s.open()
	p.subscribe(client.EDS, s.cluster("a"), s.fenceCluster())
	p.at("a", "10.1.0.1")
	q.subscribe(client.EDS, s.cluster("b"), s.fenceCluster())
	q.at("b", "10.1.0.2")
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.12"))
	q.at("b", "10.1.0.12")
	ctx, cancel := within(patience)
	defer cancel()
	if err := p.Await(ctx, func() bool {
		return len(p.addresses(s.cluster("a"))) == 1 && p.addresses(s.cluster("a"))[0] == "10.1.0.11"
	}); err != nil && !ended(err) {
		s.Errorf("the older stream is neither served nor closed: %v", err)
	}
	s.fence(q) // names that were not asked for are found in every test
}

// restarted returns what a peer had before and after a restart of the server.
func (s *scene) restarted(connect func(...option) *peer) [2]*peer {
	s.Helper()
	s.put("more.yaml", s.policy("a", 3, "v1", "v2"), s.routes("a", "tag", "a/v1"))
	s.settled("a", 3)
	before := connect()
	s.server.Stop()
	before.leave()
	s.server.start()
	return [2]*peer{before, connect()}
}

// streamsFileLayout: how objects lie in files makes no difference.
func streamsFileLayout(s *scene) {
	documents := []string{
		s.a("10.1.0.1"), s.b("10.1.0.2"), s.service(service{name: "t", ports: tcpPort, vip: vipT}),
		s.service(service{name: "w", selects: "w"}), s.workload("w-1", "w", "10.1.0.4"), s.workload("w-2", "w", "10.1.0.5"),
		s.policy("a", 3, "v1", "v2"), s.routes("a", "tag", "a/v1"), s.routes("b", "tag", "a/v2"),
	}
	s.must(os.RemoveAll(s.path("")))
	s.writeFence()
	s.put("all.yaml", documents...)
	first := s.connect()
	first.has(client.CDS, s.subset("a", "v2"))
	s.fence(first)

	other := newServer(s.T)
	for i := range documents {
		d := documents[len(documents)-1-i]
		other.put(filepath.Join(strings.Repeat("deep/", i%4), fmt.Sprintf("%d.yaml", i)), d)
	}
	fence, err := os.ReadFile(s.path(fileFence))
	s.must(err)
	other.write("z/fence.yml", string(fence))
	other.start()
	s.server, other = other, s.server
	second := s.connect()
	s.server = other
	s.sameContent("one file and many", first, second)
	if s.variant == client.Delta {
		for _, t := range client.All() {
			s.sameMaps("versions of "+t.String(), maps.Clone(first.Versions(t)), second.Versions(t))
		}
	}
}
