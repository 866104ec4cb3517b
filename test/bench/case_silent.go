package main

import (
	"errors"
	"fmt"
	"time"
)

// silent compares how fast changes reach 300 streams with and without 200 more that never read.
func silent(b *bench) error {
	b.release()
	scripts, err := b.learned(b.sizes.small, 0, wide)
	if err != nil {
		return err
	}
	for range b.reps(3) {
		if err := b.silence(scripts); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) silence(scripts []*script) error {
	const changes = 100
	quiet := b.sizes.streams * 2 / 5
	reading := fleetSize{streams: b.sizes.streams - quiet, conns: b.conns, variant: delta}
	states := newStateLog()
	m := &mesh{world: b.world(b.sizes.small), edits: make(map[string]int)}
	var err error
	if m.plane, err = serve(m.world, func(p *plane) { p.states, p.stall = states, b.sizes.stall }); err != nil {
		return err
	}
	defer m.plane.close()
	if m.fleet, err = connect(m.plane.addr, reading, scripts); err != nil {
		return err
	}
	defer m.fleet.close()
	if err := m.fleet.wait(m.fleet.settled, "the first answers"); err != nil {
		return err
	}
	if _, err := m.paced(b, changes/10); err != nil {
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	alone, err := m.paced(b, changes)
	if err != nil {
		return err
	}
	begin := time.Now()
	readers := &silentReaders{}
	defer readers.close()
	if err := readers.open(m.plane.addr, quiet, reading.streams, scripts); err != nil {
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	var beside []float64
	err = b.profiled("silent-1k", func() (err error) {
		beside, err = m.paced(b, changes)
		return err
	})
	if err != nil {
		return err
	}
	b.record("silent-1k/p99", quantile(beside, 0.99))
	b.record("silent-1k/p99-ratio", quantile(beside, 0.99)/quantile(alone, 0.99))
	// The server keeps state that streams share for two seconds; a stream that holds older states after that is stuck.
	if err := b.pause(b.sizes.forget); err != nil {
		return err
	}
	b.record("silent-1k/live-states", float64(states.live()))
	return b.closing(m.plane, readers, begin, reading.streams)
}

// paced makes changes, a short pause after each, and returns how long each took to each stream.
func (m *mesh) paced(b *bench, n int) ([]float64, error) {
	var all []float64
	c := endpointChange()
	for range n {
		i := m.edits[c.name]
		m.edits[c.name]++
		s := c.step(m.world, i)
		if _, err := m.make(m.fleet, s, new(int)); err != nil {
			return nil, err
		}
		for _, d := range s.round.at {
			all = append(all, millis(d))
		}
		if err := b.pause(20 * time.Millisecond); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// closing waits until the server has closed all silent readers: until it has released the streams, and until the clients
// have noticed.
func (b *bench) closing(p *plane, q *silentReaders, begin time.Time, others int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(p.streams.Streams()) > others {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
		if time.Since(begin) > patience {
			return fmt.Errorf("%d silent readers were not closed within %v", len(p.streams.Streams())-others, patience)
		}
	}
	b.record("silent-1k/let-go", time.Since(begin).Seconds())
	done := make(chan struct{})
	go func() { q.group.Wait(); close(done) }() // ends when the readers do, which close sees to
	select {
	case <-done:
	case <-time.After(b.sizes.unheard):
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
	q.close()
	longest := b.sizes.unheard // the recorded value if some readers are never closed
	if slowest, all := q.slowest(); all {
		longest = slowest
	}
	b.record("silent-1k/closed", longest.Seconds())
	return errors.Join(q.errs...)
}
