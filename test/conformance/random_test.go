package conformance

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// convergeRandom: after random edits an old stream holds what a new one gets. One of the old ones follows at once, one
// leaves responses unanswered for a while, one changes its subscriptions all the time. Every state of the configuration makes sense, so the streams
// that follow never see a gap.
func convergeRandom(s *scene) {
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, uint64(len(s.ns))))
	steady, lazy, fickle := s.connect(), newLazy(s, rnd), s.open()
	fickle.subscribe(client.EDS, s.fenceCluster())
	fickle.subscribe(client.RDS, fenceRoute)
	for round := range 4 {
		for range 15 {
			s.put("random.yaml", s.random(rnd)...)
			if rnd.IntN(6) == 0 {
				s.put("sidecar.yaml", sidecar(s.ns, "./*"))
			}
			if rnd.IntN(3) == 0 {
				s.must(steady.Poll())
			}
			if rnd.IntN(2) == 0 {
				lazy.stroll()
			}
			s.must(fickle.Poll())
			if s.variant == client.SotW {
				// Else a name may be dropped and asked for again before the server could know of the former: the lists it
				// is sent with stale nonces do not count.
				s.fence(fickle)
			}
			fickle.changeMind(rnd)
		}
		if round%2 == 1 {
			s.put("sidecar.yaml", "# none\n")
		}
		lazy.wakes()
		s.fence(fickle)
		fickle.makeUpMind()
		s.fence(steady, lazy.peer, fickle)
		for _, p := range []*peer{steady, lazy.peer} {
			p.await("all it refers to", func() bool { return len(p.Loose()) == 0 })
		}
		s.fence(steady, lazy.peer, fickle)
		fresh := s.connect()
		s.sameContent(fmt.Sprintf("round %d: a stream that followed and a new one", round), steady, fresh)
		s.sameContent(fmt.Sprintf("round %d: a stream that lagged and a new one", round), lazy.peer, fresh)
		for _, t := range client.All() {
			s.sameMaps(fmt.Sprintf("round %d: %s of a stream that changed its mind and of a new one", round, t), fickle.known(t, fresh), fickle.wants(fresh, t))
		}
		if s.Failed() {
			return
		}
		lazy.awake = false
	}
}

// lazy is a peer that often does not answer at once.
type lazy struct {
	*peer
	awake bool
	open  [client.Types]*client.Response // not answered yet
}

func newLazy(s *scene, rnd *rand.Rand) *lazy {
	s.Helper()
	l := &lazy{awake: true}
	l.peer = s.connect(answers(func(r *client.Response) client.Answer {
		if l.awake || !r.Known || rnd.IntN(2) == 0 {
			l.open[r.Type] = nil
			return client.Ack
		}
		l.open[r.Type] = r
		return client.Hold
	}))
	l.awake = false
	return l
}

// stroll answers the responses left unanswered so far, and then processes the ones that have arrived since.
func (l *lazy) stroll() {
	l.s.Helper()
	for t, r := range l.open {
		if r != nil {
			l.open[t] = nil
			l.s.must(l.Acknowledge(r))
		}
	}
	l.s.must(l.Poll())
}

// wakes answers everything from now on.
func (l *lazy) wakes() {
	l.s.Helper()
	l.awake = true
	l.stroll()
}

// choices are names that a fickle peer may want.
func (s *scene) choices(t client.Type) []string {
	switch t {
	case client.CDS, client.EDS:
		return []string{s.cluster("r0"), s.cluster("r1"), s.port("r2", 9000, ""), s.subset("r0", "v1"), s.cluster("a"), s.cluster("r3")}
	case client.LDS:
		return []string{"240.240.1.1_9000", "240.240.1.2_9000", listenerT, "virtualOutbound"}
	case client.RDS:
		return []string{routeHTTP, "4711"}
	}
	return nil
}

// changeMind makes a peer want something more, less or else.
func (p *peer) changeMind(rnd *rand.Rand) {
	p.s.Helper()
	t := client.All()[rnd.IntN(client.Types)]
	names := p.s.choices(t)
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	half := len(names) / 2
	add, drop := names[:rnd.IntN(half+1)], names[half:][:rnd.IntN(len(names)-half+1)]
	if _, asked := p.Asked(t); !asked && len(add) == 0 {
		return // that would ask for everything
	}
	p.s.must(p.Change(t, add, drop))
}

// makeUpMind makes a peer want all it may want.
func (p *peer) makeUpMind() {
	p.s.Helper()
	for _, t := range client.All() {
		p.subscribe(t, p.s.choices(t)...)
	}
}

// known is what a peer has, without what State-of-the-World has no words to take away.
func (p *peer) known(t client.Type, fresh *peer) map[string]string {
	m := content(p, t)
	if p.Variant == client.SotW && !t.Wildcard() {
		maps.DeleteFunc(m, func(n, _ string) bool { return fresh.Get(t, n) == nil })
	}
	return m
}

// wants is what another peer has of what this one asked for.
func (p *peer) wants(other *peer, t client.Type) map[string]string {
	m := map[string]string{}
	for n, r := range other.Held(t) {
		if p.Covers(t, n) {
			m[n] = string(r.Body)
		}
	}
	return m
}

// random is a little mesh: some of five services, with policies and routes among them.
func (s *scene) random(rnd *rand.Rand) []string {
	var names, docs []string
	for _, n := range []string{"r0", "r1", "r2", "r3", "r4"} {
		if rnd.IntN(3) > 0 {
			names = append(names, n)
		}
	}
	for i, n := range names {
		v := service{name: n, endpoints: []string{}}
		for range rnd.IntN(3) {
			v.endpoints = append(v.endpoints, fmt.Sprintf("10.3.%d.%d v%d", i, rnd.IntN(5)+1, rnd.IntN(2)))
		}
		slices.Sort(v.endpoints)
		v.endpoints = slices.CompactFunc(v.endpoints, func(a, b string) bool { return strings.Fields(a)[0] == strings.Fields(b)[0] })
		if rnd.IntN(3) == 0 {
			v.ports, v.vip = tcpPort, fmt.Sprintf("240.240.1.%d", i+1)
			docs = append(docs, s.endpointless(v))
			continue
		}
		docs = append(docs, s.endpointless(v))
		subset := fmt.Sprintf("v%d", rnd.IntN(2))
		if rnd.IntN(2) == 0 {
			docs = append(docs, s.policy(n, 1+rnd.IntN(9), subset))
			if rnd.IntN(2) == 0 {
				docs = append(docs, s.routes(n, fmt.Sprintf("tag%d", rnd.IntN(9)), n+"/"+subset))
			}
		}
	}
	rnd.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	if len(docs) == 0 {
		docs = []string{"# nothing\n"}
	}
	return docs
}

// endpointless makes a service that may be without endpoints.
func (s *scene) endpointless(v service) string {
	doc := s.service(v)
	if len(v.endpoints) == 0 {
		doc = strings.TrimSuffix(doc, "  endpoints:\n")
	}
	return doc
}
