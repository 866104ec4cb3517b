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
	for i := range b.reps(3) {
		run := func() error { return b.silence(scripts) }
		if i == 0 {
			err = b.profiled("silent-1k", run)
		} else {
			err = run()
		}
		if err != nil {
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
	if m.plane, err = serve(m.world, func(p *plane) { p.states = states }); err != nil {
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
	readers := &silentReaders{}
	defer readers.close()
	if err := readers.open(m.plane.addr, quiet, reading.streams, scripts); err != nil {
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	beside, err := m.paced(b, changes)
	if err != nil {
		return err
	}
	b.record("silent-1k/p99", quantile(beside, 0.99))
	b.record("silent-1k/p99-ratio", quantile(beside, 0.99)/quantile(alone, 0.99))
	// What streams share is remembered for two seconds; who holds older states after that is stuck.
	if err := b.pause(2500 * time.Millisecond); err != nil {
		return err
	}
	b.record("silent-1k/live-states", float64(states.live()))
	return b.closing(readers)
}

// paced makes changes, a short pause after each, and returns how long each took to each stream.
func (m *mesh) paced(b *bench, n int) ([]float64, error) {
	var all []float64
	c := endpointChange()
	for range n {
		i := m.edits[c.name]
		m.edits[c.name]++
		r := c.round(i)
		if _, err := m.fleet.await(r, func() error { m.plane.apply(c.edit(m.world, i)); return nil }); err != nil {
			return nil, err
		}
		for _, d := range r.at {
			all = append(all, millis(d))
		}
		if err := b.pause(20 * time.Millisecond); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// closing waits until the server has closed all silent readers.
func (b *bench) closing(q *silentReaders) error {
	done := make(chan struct{})
	go func() { q.group.Wait(); close(done) }() // ends when the readers do, which close sees to
	select {
	case <-done:
	case <-time.After(patience):
		return fmt.Errorf("some silent readers were not closed within %v", patience)
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
	longest := time.Duration(0)
	for _, d := range q.closed {
		longest = max(longest, d)
	}
	b.record("silent-1k/closed", longest.Seconds())
	return errors.Join(q.errs...)
}
