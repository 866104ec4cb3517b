package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// maxForwarded is the largest number of queries that are passed on at the same time. It ends a loop through other servers.
	maxForwarded = 1000
	// patience is how long the forwarder waits for one server before it queries the next one, too.
	patience = 500 * time.Millisecond
)

// errBusy is the error if too many queries are under way.
var errBusy = errors.New("too many queries wait for other servers")

// forwarder passes queries on to other servers.
type forwarder struct {
	timeout  time.Duration
	parallel bool
	metrics  *metrics
	// slots has an element for each query under way.
	slots chan struct{}
	// own are the addresses of the sockets of queries under way. A query from one of them has come back.
	own sync.Map
	// best is the index of the server that answered last. It is asked first.
	best atomic.Uint32
}

// isOwn reports whether a query is from a socket of the forwarder.
func (f *forwarder) isOwn(from netip.AddrPort) bool {
	_, own := f.own.Load(from)
	return own
}

// result is the outcome of a query to one server.
type result struct {
	server int
	answer *dns.Msg
	err    error
}

// ask returns the first good answer of a server. It returns an answer with an error code only if no server has a good one.
func (f *forwarder) ask(ctx context.Context, q *dns.Msg, servers []netip.AddrPort, tcp bool) (*dns.Msg, error) {
	if len(servers) == 0 {
		return nil, errNoServer
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		f.metrics.refused.Add(1)
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel() // before waiting
	results, first, started := make(chan result, len(servers)), int(f.best.Load()), 0
	start := func() {
		i := (first + started) % len(servers)
		started++
		asking.Go(func() {
			a, err := f.exchange(ctx, q, servers[i], tcp)
			results <- result{i, a, err}
		})
	}
	start()
	for f.parallel && started < len(servers) {
		start()
	}
	next := time.NewTimer(patience)
	defer next.Stop()
	var best result
	for ended := 0; ended < len(servers); {
		select {
		case <-next.C:
			next.Reset(patience)
		case r := <-results:
			ended++
			if r.good() {
				f.best.Store(uint32(r.server))
				return r.answer, nil
			}
			best = best.or(r)
		}
		if started < len(servers) {
			start()
		}
	}
	return best.answer, best.err
}

// good reports whether a server has answered the question.
func (r result) good() bool {
	return r.err == nil && (r.answer.Rcode == dns.RcodeSuccess || r.answer.Rcode == dns.RcodeNameError)
}

// or joins two results that are not good. An answer with an error code takes precedence over no answer.
func (r result) or(o result) result {
	switch {
	case r.answer != nil:
		return r
	case o.answer != nil:
		return o
	}
	return result{err: errors.Join(r.err, o.err)}
}

// exchange queries one server, and repeats the query over TCP if the answer over UDP is truncated.
func (f *forwarder) exchange(ctx context.Context, q *dns.Msg, server netip.AddrPort, tcp bool) (*dns.Msg, error) {
	begin := time.Now()
	f.metrics.upstream.Add(1)
	network := "udp"
	if tcp {
		network = "tcp"
	}
	a, err := f.once(ctx, network, q, server)
	if err == nil && a.Truncated && !tcp {
		if whole, tcpErr := f.once(ctx, "tcp", q, server); tcpErr == nil {
			a = whole
		}
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // another server has answered
			f.metrics.failures.Add(1)
		}
		return nil, fmt.Errorf("%v: %w", server, err)
	}
	f.metrics.observe(time.Since(begin))
	a.Id = q.Id
	return a, nil
}

// once queries one server over one network. Each query has its own socket and random number, so that only a host that sees the query can
// answer it. All other messages are ignored.
func (f *forwarder) once(ctx context.Context, network string, q *dns.Msg, server netip.AddrPort) (*dns.Msg, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	conn := &dns.Conn{Conn: raw, UDPSize: dns.MinMsgSize}
	if o := q.IsEdns0(); o != nil {
		conn.UDPSize = max(conn.UDPSize, o.UDPSize())
	}
	defer conn.Close()
	own := addressOf(raw.LocalAddr())
	f.own.Store(own, struct{}{})
	defer f.own.Delete(own)
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	asked := *q
	asked.Id = dns.Id()
	if err := conn.WriteMsg(&asked); err != nil {
		return nil, err
	}
	for {
		a, err := conn.ReadMsg()
		var broken net.Error
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("it has not answered: %w", ctx.Err())
		case err != nil && (network == "tcp" || errors.As(err, &broken)):
			return nil, err
		case err == nil && answers(a, &asked):
			return a, nil
		}
	}
}

// answers reports whether a message is the answer to a query.
func answers(a, q *dns.Msg) bool {
	if !a.Response || a.Id != q.Id || a.Opcode != q.Opcode || len(a.Question) > 1 {
		return false
	}
	if len(a.Question) == 0 { // servers that cannot read a query do not repeat it
		return a.Rcode != dns.RcodeSuccess && a.Rcode != dns.RcodeNameError
	}
	want, got := q.Question[0], a.Question[0]
	return strings.EqualFold(want.Name, got.Name) && want.Qtype == got.Qtype && want.Qclass == got.Qclass && !slices.Contains(a.Answer, nil)
}
