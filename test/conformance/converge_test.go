package conformance

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// convergeRules: whatever happens on the way, the end is right.
func convergeRules() []rule {
	return []rule{
		{name: "rapid", run: convergeRapid},
		{name: "rapid-routes", run: convergeRapidRoutes},
		{name: "revert", run: convergeRevert},
		{name: "delete-create", run: convergeDeleteCreate},
		{name: "random", run: convergeRandom},
		{name: "connect-amid", run: convergeConnectAmid},
		{name: "quiet-after", run: convergeQuietAfter},
		{name: "moved-file", run: convergeMovedFile},
		{name: "broken-file", run: convergeBrokenFile},
		{name: "bad-object", run: convergeBadObject},
		{name: "emptied", own: true, run: convergeEmptied},
	}
}

func convergeDeleteCreate(s *scene) {
	p := s.connect()
	for i := range 40 {
		s.remove(fileTCP)
		s.put(fileServices, s.a("10.1.0.1"))
		if i%3 == 0 {
			s.must(p.Poll())
		}
		s.put(fileTCP, s.service(service{name: "t", ports: tcpPort, vip: vipT}))
		s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2"))
	}
	s.fence(p)
	p.has(client.CDS, s.cluster("b"), s.port("t", 9000, ""))
	p.has(client.LDS, listenerT)
	p.at("b", "10.1.0.2")
	s.fence(p)
	s.sameContent("an old stream and a new one", p, s.connect())
}

func convergeConnectAmid(s *scene) {
	var peers []*peer
	const edits = 60
	for i := range edits {
		s.put(fileServices, s.a(s.fenceAddress(i)), s.b("10.1.0.2"), s.policy("a", 3+i), s.routes("a", fmt.Sprintf("tag-%d", i), "b"))
		if i%10 == 5 {
			p := s.open()
			p.askAll()
			peers = append(peers, p)
		}
	}
	for _, p := range peers {
		p.at("a", s.fenceAddress(edits-1))
		p.limited("a", 3+edits-1)
		p.routed(fmt.Sprintf("tag-%d", edits-1))
	}
	s.fence(peers...)
	last := s.all()
	for _, p := range peers {
		s.sameContent("a client that came in the storm and one that came after it", p, last)
	}
}

func convergeQuietAfter(s *scene) {
	p := s.all()
	const edits = 50
	for i := range edits {
		s.put(fileServices, s.a(s.fenceAddress(i)), s.b("10.1.0.2"), s.policy("a", 3+i), s.routes("a", fmt.Sprintf("tag-%d", i), "b"))
	}
	p.limited("a", 3+edits-1)
	p.at("a", s.fenceAddress(edits-1))
	p.routed(fmt.Sprintf("tag-%d", edits-1))
	s.quiet(p, "the time after a storm", func() { wait(200 * time.Millisecond) })
}

func convergeMovedFile(s *scene) {
	p := s.connect()
	s.quiet(p, "moving files", func() {
		s.must(os.Rename(s.path(fileServices), s.path("moved.yaml")))
		s.must(os.Rename(s.path(fileTCP), s.path("moved-tcp.yml")))
	})
	// The same with programs that write a new file before they delete the old one.
	s.quiet(p, "copying a file and deleting the original", func() {
		s.put("again.yaml", s.a("10.1.0.1"), s.b("10.1.0.2"))
		s.remove("moved.yaml")
	})
	s.put("again.yaml", s.a("10.1.0.11"), s.b("10.1.0.2"))
	p.at("a", "10.1.0.11")
}

func convergeEmptied(s *scene) {
	p := s.connect()
	s.must(os.RemoveAll(s.path("")))
	p.awaitGone(client.CDS, s.cluster("a"), s.cluster("b"), s.cluster("w"), s.fenceCluster(), s.port("t", 9000, ""))
	p.awaitGone(client.LDS, listenerT)
	s.base()
	p.has(client.CDS, s.cluster("a"), s.cluster("b"), s.cluster("w"), s.fenceCluster(), s.port("t", 9000, ""))
	p.has(client.LDS, listenerT)
	p.at("b", "10.1.0.2")
	s.fence(p)
	s.sameContent("an old stream and a new one", p, s.connect())
}

// wait lets time pass that the rule is about.
func wait(d time.Duration) { <-time.NewTimer(d).C }

// convergeRapid: two hundred edits of an endpoint. Its address counts them.
func convergeRapid(s *scene) {
	peers := []*peer{s.all(), s.all(), s.connect()}
	const edits = 200
	for i := range edits {
		s.put(fileServices, s.a(numbered(i)), s.b("10.1.0.2"))
	}
	for _, p := range peers {
		p.at("a", numbered(edits-1))
	}
	s.fence(peers...)
	for _, p := range peers {
		if got := p.addresses(s.cluster("a")); !slices.Equal(got, []string{numbered(edits - 1)}) {
			s.Errorf("after the last edit the past came back: %q", got)
		}
		last := -1
		for _, r := range p.Log {
			if res := r.Get(s.cluster("a")); r.Type == client.EDS && res != nil {
				n := slices.Index(allNumbered(edits), strings.Join(addresses(res), " "))
				if n < last {
					s.Errorf("edit %d came after edit %d", n, last)
				}
				last = n
			}
		}
	}
}

func numbered(i int) string { return fmt.Sprintf("10.2.%d.%d", i/200, i%200+1) }

func allNumbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = numbered(i)
	}
	return list
}

func convergeRapidRoutes(s *scene) {
	peers := []*peer{s.all(), s.connect()}
	const edits = 100
	for i := range edits {
		s.put("edit.yaml", s.routes("a", fmt.Sprintf("edit-%03d", i), "b"))
	}
	for _, p := range peers {
		p.routed(fmt.Sprintf("edit-%03d", edits-1))
	}
	s.fence(peers...)
	for _, p := range peers {
		last := -1
		for _, r := range p.Log {
			res := r.Get(routeHTTP)
			if r.Type != client.RDS || res == nil {
				continue
			}
			_, rest, ok := strings.Cut(string(res.Body), "/edit-")
			if !ok {
				continue
			}
			n, err := strconv.Atoi(rest[:3])
			s.must(err)
			if n < last {
				s.Errorf("edit %d came after edit %d", n, last)
			}
			last = n
		}
		if last != edits-1 {
			s.Errorf("the last route is edit %d, want %d", last, edits-1)
		}
	}
}

// convergeRevert: the reversal of an edit counts, whether or not the edit was seen.
func convergeRevert(s *scene) {
	p := s.all()
	for i := range 24 {
		s.put(fileServices, s.a("10.1.0.66"), s.b("10.1.0.2"), s.policy("a", 666), s.routes("a", "bad", "b"))
		if i%3 == 2 {
			p.limited("a", 666)
		} else {
			wait(time.Duration(i%8) * time.Millisecond)
		}
		s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2"))
		s.fence(p)
		if a := p.addresses(s.cluster("a")); p.connections(s.cluster("a")) == 666 || !slices.Equal(a, []string{"10.1.0.1"}) || p.mentions(client.RDS, routeHTTP, "/bad/") {
			s.Fatalf("round %d ends in the edit that was taken back", i)
		}
	}
	s.sameContent("an old stream and a new one", p, s.all())
}

// convergeBrokenFile: a file that cannot be read any more keeps its last good content.
func convergeBrokenFile(s *scene) {
	p := s.all()
	good, err := os.ReadFile(s.path(fileServices))
	s.must(err)
	for i, text := range []string{"spec: [}\n", "\x00\xff\xfe not text", "- just\n- a list\n", string(good[:len(good)/2]) + "\n  ]]]: {"} {
		s.quiet(p, fmt.Sprintf("breaking a file (%d)", i), func() { s.server.write(s.ns+"/"+fileServices, text) })
		address := fmt.Sprintf("10.1.0.%d", 50+i)
		s.put(fileWorkloads, s.service(service{name: "w", selects: "w"}), s.workload("w-1", "w", address))
		p.at("w", address)
	}
	s.sameContent("an old stream and a new one", p, s.all())
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"))
	p.at("a", "10.1.0.11")
}

// convergeBadObject: the neighbours of an invalid object keep working, in the same file and in others.
func convergeBadObject(s *scene) {
	p := s.all()
	bad := []string{
		s.service(service{name: "bad", ports: "{number: 70000, name: http, protocol: HTTP}"}),
		strings.Replace(s.routes("bad", "x", "a"), "prefix: \"/x/\"", "regex: \"[\"", 1),
		strings.Replace(s.policy("bad", 3), "maxConnections: 3", "maxConnections: many", 1),
		"apiVersion: networking.istio.io/v1\nkind: Nonsense\nmetadata: {name: bad, namespace: " + s.ns + "}\nspec: {}\n",
		strings.Replace(s.a("10.1.0.1"), "hosts:", "hostz:", 1),
	}
	for i, doc := range bad {
		doc = strings.Replace(doc, "name: a,", "name: bad,", 1)
		address := fmt.Sprintf("10.1.0.%d", 50+i)
		s.put(fileServices, s.a(address), doc, s.b("10.1.1."+strconv.Itoa(i+1)))
		p.at("a", address)
		p.at("b", "10.1.1."+strconv.Itoa(i+1))
	}
	s.fence(p)
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"))
	p.at("a", "10.1.0.11")
	s.sameContent("an old stream and a new one", p, s.all())
}
