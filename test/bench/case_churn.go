package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const churnRate = 100 // changes a second

// staleness notes how long after its change a stream had an assignment. Each stream writes to samples of its own, made
// before the measurement so that they are no growth.
type staleness struct {
	changed []atomic.Int64 // by service: when its last change was handed over, in ns since begin
	samples []samples      // by stream
	begin   time.Time
}

// samples are written by one goroutine and may be read by others up to n.
type samples struct {
	ms []float64
	n  atomic.Int64
}

func newStaleness(services, streams, changes int) *staleness {
	s := &staleness{changed: make([]atomic.Int64, services), samples: make([]samples, streams), begin: time.Now()}
	for i := range s.samples {
		s.samples[i].ms = make([]float64, changes+changes/4)
	}
	return s
}

func (s *staleness) watch(by *stream, t resource.Type, list []named) {
	if t != resource.Endpoint {
		return
	}
	now := time.Since(s.begin)
	own := &s.samples[by.id]
	for _, r := range list {
		i, ok := serviceOf(r.name)
		n := own.n.Load()
		if !ok || i >= len(s.changed) || int(n) == len(own.ms) {
			continue
		}
		own.ms[n] = millis(now - time.Duration(s.changed[i].Load()))
		own.n.Store(n + 1)
	}
}

// serviceOf finds the number of a service in the name of its cluster: outbound|80||svc-17.ns-17.svc.cluster.local.
func serviceOf(name []byte) (int, bool) {
	_, rest, found := bytes.Cut(name, []byte("|svc-"))
	n, digits := 0, 0
	for found && digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		n = 10*n + int(rest[digits]-'0')
		digits++
	}
	return n, digits > 0
}

// churn changes the endpoints of one service after the other. A change is not waited for: the next comes 10 ms later.
func churn(b *bench) error {
	size := fleetSize{streams: b.sizes.fewer, conns: min(b.conns, b.sizes.fewer), variant: delta}
	m, err := b.settled(b.sizes.small, size)
	if err != nil {
		return err
	}
	var turn []int // services with endpoints of their own and one cluster, that all streams see
	for i := range b.sizes.small {
		if !selected(i) && !ruled(i) && !private(i) {
			turn = append(turn, i)
		}
	}
	changes := int(b.sizes.churn.Seconds() * churnRate)
	s := newStaleness(b.sizes.small, len(m.fleet.streams), changes)
	if _, err := m.changes(b, m.fleet, endpointChange(), 10); err != nil {
		return err
	}
	before := retained()
	m.fleet.observe(s.watch)
	used := cpuTime()
	err = b.profiled("churn", func() error { return m.churn(b, s, turn, changes) })
	used = cpuTime() - used
	m.fleet.observe(nil)
	if err != nil {
		return err
	}
	if err := b.pause(b.sizes.forget); err != nil { // results that streams share are remembered for two seconds
		return err
	}
	after := retained()
	var pool []float64
	for i := range s.samples {
		own := &s.samples[i]
		pool = append(pool, own.ms[:own.n.Load()]...)
	}
	b.record("churn/staleness-p50", quantile(pool, 0.5))
	b.record("churn/staleness-p99", quantile(pool, 0.99))
	b.record("churn/staleness-max", quantile(pool, 1))
	b.record("churn/delivered", 100*float64(len(pool))/float64(changes*len(m.fleet.streams)))
	b.record("churn/cores", used.Seconds()/b.sizes.churn.Seconds())
	b.record("churn/heap-growth", 100*(after-before)/before)
	if err := m.bareChurn(b, min(changes, 5*churnRate)); err != nil {
		return err
	}
	return churnApart(b, turn, min(changes, 10*churnRate))
}

// churnApart measures the CPU time of the control plane alone: its clients have a process of their own.
func churnApart(b *bench, turn []int, changes int) error {
	b.release()
	m := &mesh{world: b.world(b.sizes.small), edits: make(map[string]int)}
	var err error
	if m.plane, err = serve(m.world); err != nil {
		return err
	}
	defer m.plane.close()
	task := clientsTask{Addr: m.plane.addr, Streams: b.sizes.fewer, Conns: min(b.conns, b.sizes.fewer)}
	clients, err := b.apart(apartTask{Clients: &task})
	if err != nil {
		return err
	}
	_, err = clients.line()
	if err == nil {
		err = b.calm()
	}
	used := cpuTime()
	if err == nil {
		err = m.churn(b, nil, turn, changes)
	}
	used = cpuTime() - used
	_ = clients.stdin.Close()
	received, lost := clients.line()
	if err := errors.Join(err, lost, clients.end()); err != nil {
		return fmt.Errorf("with clients in a process of their own: %w", err)
	}
	if want := strconv.Itoa(changes * task.Streams); received != want {
		return fmt.Errorf("clients in a process of their own received %s resources, want %s", received, want)
	}
	b.record("churn/server-cores", used.Seconds()/(float64(changes)/churnRate))
	return nil
}

// bareChurn measures the CPU time of grpc-go and the clients alone for as many messages: that much of the figure is
// not the product's, and it shows how fast the machine is at the moment.
func (m *mesh) bareChurn(b *bench, changes int) error {
	scripts, err := b.learned(b.sizes.small, 0, 1)
	if err != nil {
		return err
	}
	rec := &recording{}
	one, err := connectRecorded(m.plane.addr, fleetSize{streams: 1, conns: 1, variant: delta, first: len(m.fleet.streams)}, scripts, rec)
	if err != nil {
		return err
	}
	defer one.close()
	if err := one.wait(one.settled, "the first answers"); err != nil {
		return err
	}
	if _, err := m.changes(b, one, endpointChange(), 1); err != nil {
		return err
	}
	one.close() // its recording is read now
	answers := rec.messages[resource.Endpoint]
	last := answers[len(answers)-1]
	s, err := serveBare(delta, rec)
	if err != nil {
		return err
	}
	defer s.close()
	f, err := connect(s.addr, m.size, scripts)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.wait(f.settled, "the first answers"); err != nil {
		return err
	}
	f.observe(newStaleness(b.sizes.small, len(f.streams), changes).watch) // the clients' work is to be the same
	if err := b.calm(); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / churnRate)
	defer tick.Stop()
	used := cpuTime()
	for range changes {
		<-tick.C
		if err := s.broadcast(last); err != nil {
			return err
		}
	}
	b.record("churn/bare-cores", (cpuTime()-used).Seconds()/(float64(changes)/churnRate))
	return nil
}

// churn makes the changes. The fleet and s may be missing.
func (m *mesh) churn(b *bench, s *staleness, turn []int, changes int) error {
	tick := time.NewTicker(time.Second / churnRate)
	defer tick.Stop()
	var ended <-chan struct{}
	if m.fleet != nil {
		ended = m.fleet.ctx.Done()
	}
	generation := 101 + m.edits["churn"]
	m.edits["churn"] += 1 + changes/len(turn)
	for n := range changes {
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("during the churn: %w", m.fleet.wait(newLatch(1), "changes"))
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
		i := turn[n%len(turn)]
		o := m.world.service(i, generation+n/len(turn))
		if s != nil {
			s.changed[i].Store(int64(time.Since(s.begin)))
		}
		m.plane.apply(edit{set: []*api.Object{o}})
	}
	return b.pause(500 * time.Millisecond)
}
