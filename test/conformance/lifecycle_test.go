package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// lifecycleRules: connections live long, processes end.
func lifecycleRules() []rule {
	return []rule{
		// The third ping too many is what gRPC servers throw a client out for; the first one counts for nothing.
		{name: "keepalive", only: onlyDelta(), run: func(s *scene) { s.pings(20*time.Second, 85*time.Second) }},
		{name: "keepalive-10s", only: onlyDelta(), wish: true, run: func(s *scene) { s.pings(10*time.Second, 45*time.Second) }},
		{name: "dead-peer", only: onlyDelta(), wish: true, run: lifecycleDeadPeer},
		{name: "idle", run: func(s *scene) {
			p, q := s.open(), s.all()
			wait(3 * time.Second)
			p.askAll()
			p.awaitBase()
			s.fence(p, q)
		}},
		{name: "not-empty", own: true, bare: true, run: lifecycleNotEmpty},
		{name: "empty-world", own: true, bare: true, run: func(s *scene) {
			s.server.start()
			p := s.open()
			p.subscribe(client.CDS)
			p.subscribe(client.LDS)
			p.await("answers", func() bool { return firsts(p.Log)[client.CDS] >= 0 && firsts(p.Log)[client.LDS] >= 0 })
			s.base()
			p.has(client.CDS, s.cluster("a"), s.fenceCluster())
			p.has(client.LDS, listenerT)
		}},
		{name: "graceful", own: true, run: lifecycleGraceful},
		{name: "graceful-code", own: true, wish: true, run: func(s *scene) {
			p := s.all()
			s.server.signal(syscall.SIGTERM, 25*time.Second)
			ctx, cancel := within(patience)
			defer cancel()
			why, err := p.End(ctx)
			s.must(err)
			if code := status.Code(why); !errors.Is(why, io.EOF) && code != codes.Unavailable {
				s.Errorf("the stream ended with %v: that tells clients that something is broken", why)
			}
		}},
		{name: "restart", own: true, run: func(s *scene) { s.restarts(func() { s.server.Stop() }) }},
		{name: "killed", own: true, run: func(s *scene) { s.restarts(func() { s.server.Kill() }) }},
		{name: "half-closed", run: func(s *scene) {
			p := s.all()
			s.must(p.CloseSend())
			ctx, cancel := within(patience)
			defer cancel()
			why, err := p.End(ctx)
			s.must(err)
			if !errors.Is(why, io.EOF) {
				s.Errorf("the stream ended with %v, want no error", why)
			}
		}},
	}
}

func lifecycleGraceful(s *scene) {
	p, q := s.all(), s.open()
	s.large()
	for range 3 { // a client that does not read holds up no other
		s.must(s.open(deaf).Subscribe(client.CDS))
	}
	s.server.signal(syscall.SIGTERM, 25*time.Second)
	for _, one := range []*peer{p, q} {
		ctx, cancel := within(patience)
		defer cancel()
		if _, err := one.End(ctx); err != nil {
			s.Errorf("the stream has not ended: %v", err)
		}
	}
}

// pings keeps a connection quiet except for pings, and checks that it lives as long as it should.
func (s *scene) pings(every, long time.Duration) {
	s.Helper()
	p := s.all(func(o *client.Options) {
		o.Dial = append(o.Dial, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: every, Timeout: 10 * time.Second, PermitWithoutStream: true}))
	})
	wait(long)
	s.fence(p)
}

// restarts checks that clients notice that the server goes away, and get the present state when they come back.
func (s *scene) restarts(stop func()) {
	s.Helper()
	p, q := s.all(), s.connect()
	stop()
	for _, one := range []*peer{p, q} {
		ctx, cancel := within(patience)
		defer cancel()
		if _, err := one.End(ctx); err != nil {
			s.Errorf("the stream has not ended: %v", err)
		}
		one.leave()
	}
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3)) // while the server is away
	s.remove(fileTCP)
	s.server.start()
	now := s.connect()
	now.at("a", "10.1.0.11")
	now.limited("a", 3)
	if now.Get(client.LDS, listenerT) != nil {
		s.Error("a service deleted while the server was away is back")
	}
	s.fence(now)
}

// lifecycleNotEmpty: clients hammer a server with many services from before it listens.
func lifecycleNotEmpty(s *scene) {
	const services = 600
	for f := range 30 {
		var docs []string
		for i := range services / 30 {
			docs = append(docs, s.service(service{name: fmt.Sprintf("s%d-%d", f, i)}))
		}
		s.put(fmt.Sprintf("%d.yaml", f), docs...)
	}
	ctx, cancel := within(patience)
	defer cancel()
	var wg sync.WaitGroup
	results := make(chan string, 4)
	for range 4 {
		wg.Go(func() { results <- s.hammer(ctx, services) })
	}
	s.server.start()
	wg.Wait()
	close(results)
	for r := range results {
		if r != "" {
			s.Error(r)
		}
	}
}

// hammer connects until it is served, and returns the fault of that answer: the first answer must not show a state that is still being read.
func (s *scene) hammer(ctx context.Context, services int) string {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		c, err := client.Open(ctx, client.Options{Address: s.server.GRPC, Variant: s.variant, Node: node("client", s.ns), Checker: s.server.checker})
		if err != nil {
			continue
		}
		_ = c.Subscribe(client.CDS) // Next returns the error
		_, err = c.Next(ctx)
		for err == nil && s.outbound(c) < services && s.variant == client.Delta && moreComing(c) {
			_, err = c.Next(ctx) // large answers may come in parts
		}
		n := s.outbound(c)
		c.Close()
		switch {
		case err != nil:
			continue
		case n != services:
			return fmt.Sprintf("a client that came while the server started was sent %d of %d clusters", n, services)
		}
		return ""
	}
	return "no client was served"
}

// outbound counts the clusters of services a client has.
func (s *scene) outbound(c *client.Client) int {
	n := 0
	for _, name := range c.Names(client.CDS) {
		if len(name) > 9 && name[:9] == "outbound|" {
			n++
		}
	}
	return n
}

// moreComing reports whether the last response was so large that it may be part of a sequence.
func moreComing(c *client.Client) bool { return c.Log[len(c.Log)-1].Size > 128<<10 }

// lifecycleDeadPeer: behind a relay that swallows everything a client looks as if its machine had vanished.
func lifecycleDeadPeer(s *scene) {
	r := newRelay(s)
	p := s.all(func(o *client.Options) { o.Address = r.address })
	s.fence(p)
	r.vanish()
	const limit = 45 * time.Second
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.dropped:
	case <-timer.C:
		s.Errorf("the server has not noticed within %s that its peer is gone", limit)
	}
}

// relay forwards one TCP connection until it is set to discard all data.
type relay struct {
	address string
	dropped chan struct{} // closed when the server has closed the connection

	mu    sync.Mutex
	gone  bool
	conns []io.Closer
}

func newRelay(s *scene) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	r := &relay{address: l.Addr().String(), dropped: make(chan struct{}), conns: []io.Closer{l}}
	var running sync.WaitGroup
	running.Go(func() {
		defer close(r.dropped)
		down, err := l.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", s.server.GRPC)
		if err != nil {
			down.Close()
			return
		}
		r.mu.Lock()
		r.conns = append(r.conns, down, up)
		r.mu.Unlock()
		running.Go(func() { r.copy(up, down) })
		r.copy(down, up)
	})
	s.Cleanup(func() {
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		running.Wait()
	})
	return r
}

// vanish makes the relay swallow everything from now on.
func (r *relay) vanish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
}

// copy forwards bytes until the sender is done.
func (r *relay) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		gone := r.gone
		r.mu.Unlock()
		if gone {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
