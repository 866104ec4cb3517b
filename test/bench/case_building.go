package main

import (
	"fmt"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
)

// scopedService is a service that the Sidecars of the world let in and that has no rules.
const scopedService = 81

// building changes endpoints that old, scoped streams see while the state of 10,000 services is built for new streams:
// what these need has never been computed.
func building(b *bench) error {
	b.release()
	old, err := b.learned(b.sizes.large, firstScoped, scopes)
	if err != nil {
		return err
	}
	fresh, err := b.learned(b.sizes.large, 0, wide)
	if err != nil {
		return err
	}
	for range b.reps(3) {
		if err := b.build(old, fresh); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) build(old, fresh []*script) error {
	p, err := serve(b.world(b.sizes.large))
	if err != nil {
		return err
	}
	defer p.close()
	settled, err := connect(p.addr, fleetSize{streams: len(old), conns: len(old), variant: delta}, old)
	if err != nil {
		return err
	}
	defer settled.close()
	if err := settled.wait(settled.settled, "the first answers"); err != nil {
		return err
	}
	if err := b.pause(b.sizes.forget); err != nil { // for a second after its first answers a stream counts as new itself
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	return b.profiled("building-10k", func() error { return b.changeMeanwhile(p, settled, fresh) })
}

func (b *bench) changeMeanwhile(p *plane, settled *fleet, fresh []*script) error {
	w := b.world(b.sizes.large)
	if _, err := p.takeCommits(); err != nil {
		return err
	}
	begin := time.Now()
	coming, err := connect(p.addr, fleetSize{streams: len(fresh), conns: len(fresh), variant: delta, first: len(settled.streams)}, fresh)
	if err != nil {
		return err
	}
	defer coming.close()
	var made []*round
	var last []float64
	for n := 1; !coming.begun.isOpen() || n < 3; n++ {
		e, r := edit{set: []*api.Object{w.service(scopedService, n)}}, need(0, 1, 0)
		took, err := settled.await(r, func() { p.apply(e) })
		if err != nil {
			return fmt.Errorf("endpoint change %d during the build: %w", n, err)
		}
		made, last = append(made, r), append(last, millis(took))
	}
	b.record("building-10k/built-in", millis(time.Since(begin)))
	b.record("building-10k/last-p50", median(last))
	b.record("building-10k/last-max", quantile(last, 1))
	if err := b.delays(p, made); err != nil {
		return err
	}
	return coming.wait(coming.settled, "the first answers")
}

// delays tells how long changes waited for the loop, and how long it had to do with them.
func (b *bench) delays(p *plane, made []*round) error {
	commits, err := p.takeCommits()
	if err != nil {
		return err
	}
	waited, worked := time.Duration(0), time.Duration(0)
	for _, c := range commits {
		if c.Objects[sourceName] == 0 || len(made) == 0 {
			continue
		}
		waited, worked = max(waited, c.At.Sub(made[0].begin)), max(worked, c.Duration)
		made = made[1:]
	}
	b.record("building-10k/waited-max", millis(waited))
	b.record("building-10k/commit-max", millis(worked))
	return nil
}
