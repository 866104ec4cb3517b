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
	for i := range b.reps(3) {
		run := func() error { return b.build(old, fresh) }
		if i == 0 {
			err = b.profiled("building-10k", run)
		} else {
			err = run()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) build(old, fresh []*script) error {
	w := b.world(b.sizes.large)
	p, err := serve(w)
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
	if err := b.calm(); err != nil {
		return err
	}
	begin := time.Now()
	coming, err := connect(p.addr, fleetSize{streams: len(fresh), conns: len(fresh), variant: delta, first: len(old)}, fresh)
	if err != nil {
		return err
	}
	defer coming.close()
	var last []float64
	for n := 1; !coming.begun.isOpen() || n < 3; n++ {
		e := edit{set: []*api.Object{w.service(scopedService, n)}}
		took, err := settled.await(need(0, 1, 0), func() { p.apply(e) })
		if err != nil {
			return fmt.Errorf("endpoint change %d during the build: %w", n, err)
		}
		last = append(last, millis(took))
	}
	b.record("building-10k/built-in", millis(time.Since(begin)))
	b.record("building-10k/last-p50", median(last))
	b.record("building-10k/last-max", quantile(last, 1))
	b.record("building-10k/changes", float64(len(last)))
	return coming.wait(coming.settled, "the first answers")
}
