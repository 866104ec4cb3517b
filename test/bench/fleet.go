package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// clientWindow is the flow-control window of clients: large, as Envoy's is (256 MiB by default).
	clientWindow = 64 << 20
	// patience is how long anything is waited for. It is no bar: a case that runs into it could not run.
	patience = 5 * time.Minute
)

// latch opens when done was called so many times.
type latch struct {
	left atomic.Int64
	open chan struct{}
}

func newLatch(n int) *latch {
	l := &latch{open: make(chan struct{})}
	l.left.Store(int64(n))
	if n == 0 {
		close(l.open)
	}
	return l
}

func (l *latch) done() {
	if l.left.Add(-1) == 0 {
		close(l.open)
	}
}

// watcher is called with the resources of each answer that a stream receives, from the stream's goroutine.
type watcher func(s *stream, t resource.Type, list []named)

// fleet is a number of clients, spread evenly over scripts and TCP connections.
type fleet struct {
	variant   variant
	first     int // number of the first client: no two fleets of a server share clients
	reconnect bool
	split     bool // virtual hosts are resources of their own
	patient   bool // a stream that ends before its first answer is opened again, as soon as its connection is back
	streams   []*stream
	conns     []*grpc.ClientConn

	begun   *latch // every stream has received something
	settled *latch // every stream has all it asked for
	round   atomic.Pointer[round]
	watch   atomic.Pointer[watcher]

	ctx    context.Context //nolint:containedctx // it is the fleet's life; Close ends it
	cancel context.CancelCauseFunc
	group  sync.WaitGroup
}

// fleetSize is the number and kind of the clients of a fleet.
type fleetSize struct {
	streams, conns int
	variant        variant
	first          int
	reconnect      bool
	split          bool
	patient        bool
}

var errClosed = errors.New("the fleet was closed")

// dial prepares connections; they are made when the first stream wants them.
func dial(addr string, n int) ([]*grpc.ClientConn, error) {
	var conns []*grpc.ClientConn
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(clientWindow), grpc.WithInitialConnWindowSize(clientWindow),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// hangUp closes connections. That they may be closed already is no concern of anybody.
func hangUp(conns []*grpc.ClientConn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// connect starts the clients. It does not wait for anything.
func connect(addr string, size fleetSize, scripts []*script) (*fleet, error) {
	return connectWatched(addr, size, scripts, nil)
}

// connectRecorded starts clients and records the answers to the first one.
func connectRecorded(addr string, size fleetSize, scripts []*script, r *recording) (*fleet, error) {
	f, err := prepare(addr, size, scripts)
	if err == nil {
		f.streams[0].record = r
		f.start()
	}
	return f, err
}

// connectWatched starts clients that a watcher observes from the beginning.
func connectWatched(addr string, size fleetSize, scripts []*script, w watcher) (*fleet, error) {
	f, err := prepare(addr, size, scripts)
	if err == nil {
		f.observe(w)
		f.start()
	}
	return f, err
}

func prepare(addr string, size fleetSize, scripts []*script) (*fleet, error) {
	conns, err := dial(addr, min(size.conns, size.streams))
	if err != nil {
		return nil, err
	}
	f := &fleet{
		variant: size.variant, first: size.first, reconnect: size.reconnect, split: size.split, patient: size.patient, conns: conns,
		begun: newLatch(size.streams), settled: newLatch(size.streams),
	}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	for i := range size.streams {
		f.streams = append(f.streams, &stream{fleet: f, script: scripts[i%len(scripts)], id: i, settled: size.reconnect})
	}
	return f, nil
}

func (f *fleet) start() {
	for i, s := range f.streams {
		f.group.Go(func() {
			err := s.run(f.ctx, f.conns[i%len(f.conns)])
			for f.patient && !s.begun && f.ctx.Err() == nil {
				s.asked = 0
				err = s.run(f.ctx, f.conns[i%len(f.conns)])
			}
			if f.ctx.Err() == nil {
				f.cancel(fmt.Errorf("%v ended: %w", s, err))
			}
		})
	}
}

// close ends all clients and waits for them.
func (f *fleet) close() {
	f.cancel(errClosed)
	f.group.Wait()
	hangUp(f.conns)
}

// wait waits for a latch.
func (f *fleet) wait(l *latch, what string) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-l.open:
		return nil
	case <-f.ctx.Done():
		return fmt.Errorf("waiting for %s: %w", what, context.Cause(f.ctx))
	case <-limit.C:
		return fmt.Errorf("waiting for %s: %d of %d streams are still missing after %v; %v", what, l.left.Load(), len(f.streams), patience, f.streams[0])
	}
}

// observe makes w the watcher; nil ends it.
func (f *fleet) observe(w watcher) {
	if w == nil {
		f.watch.Store(nil)
		return
	}
	f.watch.Store(&w)
}

// totals are sums over all streams of a fleet.
type totals struct {
	bytes, responses   int64
	resources, removed [types]int64
}

func (f *fleet) totals() totals {
	var t totals
	for _, s := range f.streams {
		t.bytes += s.bytes.Load()
		t.responses += s.responses.Load()
		for i := range t.resources {
			t.resources[i] += s.resources[i].Load()
			t.removed[i] += s.removed[i].Load()
		}
	}
	return t
}

func (t totals) minus(o totals) totals {
	t.bytes -= o.bytes
	t.responses -= o.responses
	for i := range t.resources {
		t.resources[i] -= o.resources[i]
		t.removed[i] -= o.removed[i]
	}
	return t
}

// things counts resources and removals of all types.
func (t totals) things() int {
	n := int64(0)
	for i := range t.resources {
		n += t.resources[i] + t.removed[i]
	}
	return int(n)
}

// round is one change on its way to the clients.
type round struct {
	// need is how many resources and removals of each type a client must receive to have the change.
	need [types]int
	// any is set if any resource or removal will do.
	any bool
	// may is how many more may come.
	may [types]int
	// only, if not nil, reports whether a stream needs the change.
	only func(*stream) bool
	// reply is sent when all needed resources of a type have come: Envoy subscribes to the endpoints of a new cluster then.
	reply [types][]byte

	begin     time.Time
	concerned int
	at        []time.Duration // by stream: when it had the change
	arrivals  *latch
}

func (r *round) member(s *stream) bool { return r.only == nil || r.only(s) }

func (r *round) complete(got *[types]int) bool {
	if r.any && *got == [types]int{} {
		return false
	}
	for t, n := range r.need {
		if got[t] < n {
			return false
		}
	}
	return true
}

// await runs apply and waits until every client concerned has the resources of the round. It returns the time of the last one.
func (f *fleet) await(r *round, apply func()) (last time.Duration, err error) {
	f.begin(r)
	apply()
	return f.arrived(r)
}

// begin makes a round the one that the clients count for.
func (f *fleet) begin(r *round) {
	if f.split { // a virtual host comes instead of its route configuration
		r.need[resource.VirtualHost], r.need[resource.Route] = r.need[resource.Route], 0
	}
	for _, s := range f.streams {
		if r.member(s) {
			r.concerned++
		}
	}
	r.arrivals = newLatch(r.concerned)
	r.at = make([]time.Duration, len(f.streams))
	r.begin = time.Now()
	f.round.Store(r)
}

// arrived waits until every client concerned has the resources of the round. It returns the time of the last one.
func (f *fleet) arrived(r *round) (last time.Duration, err error) {
	if err := f.wait(r.arrivals, "a change"); err != nil {
		return 0, err
	}
	for _, d := range r.at {
		last = max(last, d)
	}
	return last, nil
}
