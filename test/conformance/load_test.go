package conformance

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/test/conformance/client"
	"github.com/pilotmesh/pilot/test/testbed"
)

// loadRules: no client waits for another. They run alone, each with a control plane of its own.
func loadRules() []rule {
	return []rule{
		{name: "never-reads", own: true, run: func(s *scene) {
			s.large()
			p := s.all()
			for range 40 {
				d := s.open(deaf)
				s.must(d.Subscribe(client.CDS))
				s.must(d.Subscribe(client.LDS))
			}
			s.swift(p)
		}},
		{name: "never-reads-closed", own: true, wish: true, run: loadNeverReadsClosed},
		{name: "flood", own: true, run: func(s *scene) {
			s.flooded(func(p *client.Client, i int) error {
				return p.Send(client.Request{URL: client.CDS.URL(), Nonce: "stale", Version: "stale"})
			}, 10_000)
		}},
		{name: "subscription-flood", own: true, run: func(s *scene) {
			s.flooded(func(p *client.Client, i int) error {
				if i%2 == 0 {
					return p.Subscribe(client.EDS, s.cluster("a"))
				}
				return p.Unsubscribe(client.EDS, s.cluster("a"))
			}, 0)
		}},
		{name: "500-streams", own: true, run: func(s *scene) {
			s.leavesNothing(500, func(c *client.Client) {
				for _, t := range client.All() {
					_ = c.Subscribe(t, map[client.Type][]string{client.EDS: {s.cluster("a")}, client.RDS: {routeHTTP}}[t]...)
				}
				ctx, cancel := within(patience)
				defer cancel()
				_, _ = c.Next(ctx) // served or not: the test looks for leaks
			})
		}},
		{name: "cancelled", own: true, run: func(s *scene) {
			s.leavesNothing(2000, func(c *client.Client) { _ = c.Subscribe(client.CDS) })
		}},
		{name: "many-watchers", own: true, run: loadManyWatchers},
	}
}

// large adds services, so that there is something to read.
func (s *scene) large() {
	s.Helper()
	const services = 1000
	var docs []string
	for i := range services {
		docs = append(docs, s.service(service{name: fmt.Sprintf("large-%d", i)}))
	}
	s.put("large.yaml", docs...)
	s.probe(client.CDS, "a thousand services", func(p *peer) bool { return p.Get(client.CDS, s.cluster(fmt.Sprintf("large-%d", services-1))) != nil })
}

// swift checks that edits reach a peer in time.
func (s *scene) swift(p *peer) {
	s.Helper()
	const edits, limit = 20, time.Second
	var took []time.Duration
	for i := range edits {
		begin := time.Now()
		s.put(fileServices, s.a(numbered(i)), s.b("10.1.0.2"))
		p.at("a", numbered(i))
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	s.Logf("an edit arrives within %s (median), %s (worst)", took[edits/2], took[edits-1])
	if took[edits-1] > limit {
		s.Errorf("an edit took %s to arrive", took[edits-1])
	}
}

// flooded checks that edits reach a peer in time while another stream sends as many requests a second as rate says, or as it can.
func (s *scene) flooded(send func(c *client.Client, i int) error, rate int) {
	s.Helper()
	p, q := s.all(), s.open()
	q.askAll()
	q.awaitBase()
	s.swift(p)
	ctx, cancel := context.WithCancel(context.Background())
	var sent atomic.Int64
	var flood sync.WaitGroup
	flood.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			if rate > 0 && i%(rate/100) == 0 {
				<-tick.C
			}
			if send(q.Client, i) != nil {
				return // the server has had enough of it
			}
			sent.Add(1)
			if i%64 == 0 {
				_ = q.Poll() // its answers do not matter to this test
			}
		}
	})
	for range 5 {
		s.swift(p)
	}
	cancel()
	flood.Wait()
	s.Logf("%d requests were sent meanwhile", sent.Load())
	q.leave()
	s.fence(p)
}

// leavesNothing opens many streams at once, drops them, and checks what the server is left with.
func (s *scene) leavesNothing(streams int, use func(*client.Client)) {
	s.Helper()
	bystander := s.all()
	once := func() {
		var all sync.WaitGroup
		slots := make(chan struct{}, 500)
		for i := range streams {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := within(patience)
				defer cancel()
				c, err := client.Open(ctx, client.Options{Address: s.server.GRPC, Variant: s.variant, Node: node(fmt.Sprintf("n%d", i), s.ns), Checker: s.server.checker})
				if err != nil {
					return
				}
				use(c)
				c.Close()
			})
		}
		all.Wait()
	}
	once() // what a first herd makes grow once stays: pools, maps
	goroutines, heap := s.settle(0)
	once()
	after, grown := s.settle(goroutines)
	if after > goroutines+10 {
		s.Errorf("%d streams leave %g goroutines behind", streams, after-goroutines)
	}
	if grown-heap > 8<<20 {
		s.Errorf("%d streams leave %g MiB behind", streams, (grown-heap)/(1<<20))
	}
	s.Logf("%d streams: the heap is %.1f MiB, %.1f before", streams, grown/(1<<20), heap/(1<<20))
	s.fence(bystander)
}

// settle waits until the server has cleaned up, and returns the lowest number of its goroutines that it has seen, and its heap in use
// after its collector has run. The lowest, because the connection that reads the metric has goroutines of its own that come and go.
func (s *scene) settle(goroutines float64) (lowest, heap float64) {
	s.Helper()
	ending, cancelEnding := within(patience)
	defer cancelEnding()
	lowest, same := math.Inf(1), 0
	_ = testbed.Until(ending, "goroutines to end", func(context.Context) error { // the caller judges
		now := s.server.metric("go_goroutines")
		if now < lowest {
			lowest, same = now, 0
		} else {
			same++
		}
		if same < 20 || goroutines > 0 && lowest > goroutines+10 {
			return fmt.Errorf("%g goroutines", now)
		}
		return nil
	})
	// Twice, because pools release their memory at the second run.
	ctx, cancel := within(patience)
	defer cancel()
	for range 2 {
		_, err := s.server.Get(ctx, "/debug/pprof/heap?gc=1")
		s.must(err)
	}
	heap = s.server.metric("go_memstats_heap_alloc_bytes")
	return lowest, heap
}

// loadNeverReadsClosed: a client that was sent more than it takes loses its stream.
func loadNeverReadsClosed(s *scene) {
	s.large()
	w := s.wire(4096)
	defer w.Close()
	s.must(w.Begin(1, s.variant.Method()))
	raw, err := client.Request{URL: client.CDS.URL(), Node: node("client", s.ns)}.Encode(s.variant)
	s.must(err)
	s.must(w.Message(1, raw, len(raw)))
	const limit = 15 * time.Second
	begin := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.Reset():
	case <-w.Ended():
	case <-timer.C:
		s.Errorf("a client that does not read is still there after %s", limit)
	}
	s.Logf("closed after %s", time.Since(begin))
}

// loadManyWatchers: an edit reaches a hundred clients hardly later than one.
func loadManyWatchers(s *scene) {
	one := s.all()
	measure := func(peers []*peer) time.Duration {
		var worst time.Duration
		for i := range 5 {
			address := numbered(len(peers)*10 + i)
			begin := time.Now()
			s.put(fileServices, s.a(address), s.b("10.1.0.2"))
			for _, p := range peers {
				p.at("a", address)
				worst = max(worst, time.Since(begin))
			}
		}
		return worst
	}
	alone := measure([]*peer{one})
	peers := []*peer{one}
	for range 99 {
		peers = append(peers, s.all())
	}
	together := measure(peers)
	s.Logf("alone %s, a hundred %s", alone, together)
	if together > alone+2*time.Second {
		s.Errorf("an edit reaches one client after %s and a hundred after %s", alone, together)
	}
}
