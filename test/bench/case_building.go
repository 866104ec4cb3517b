package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
)

// scopedService is a service that the Sidecars of the world let in and that has no rules.
const scopedService = 81

// building changes endpoints that old, scoped streams see while the state of 10,000 services is built for new streams:
// their state has never been computed. The old clients and the new ones have a process of their own each.
func building(b *bench) (err error) {
	b.release()
	coming, err := b.arrivals(b.sizes.large, scopes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, coming.end()) }()
	for range b.reps(3) {
		if err := b.build(coming); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) build(coming *process) (err error) {
	p, err := serve(b.world(b.sizes.large))
	if err != nil {
		return err
	}
	defer p.close()
	settled, err := b.residents(p.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, settled.end()) }()
	if err := b.pause(b.sizes.forget); err != nil { // for a second after its first answers a stream counts as new itself
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	return b.profiled("building-10k", func() error { return b.changeMeanwhile(p, settled, coming) })
}

func (b *bench) changeMeanwhile(p *plane, settled, coming *process) error {
	if _, err := p.takeCommits(); err != nil {
		return err
	}
	begin := time.Now()
	begun, err := coming.come(p.addr)
	if err != nil {
		return err
	}
	made, last, err := b.changeUntil(begun, p, settled)
	if err != nil {
		return err
	}
	b.record("building-10k/built-in", millis(time.Since(begin)))
	b.record("building-10k/last-p50", median(last))
	b.record("building-10k/last-max", quantile(last, 1))
	if err := b.delays(p, made); err != nil {
		return err
	}
	return coming.expect(saysSettled)
}

// changeUntil changes an endpoint again and again until the new streams have begun to receive, and at least twice. It returns the
// changes, and the milliseconds that each took to reach the last of the settled streams.
func (b *bench) changeUntil(begun <-chan error, p *plane, settled *process) (made []time.Time, last []float64, err error) {
	w := b.world(b.sizes.large)
	for n, more := 1, true; more || n < 3; n++ {
		e := edit{set: []*api.Object{w.service(scopedService, n)}}
		begin, took, err := settled.await(func() { p.apply(e) })
		if err != nil {
			return nil, nil, fmt.Errorf("endpoint change %d during the build: %w", n, err)
		}
		made, last = append(made, begin), append(last, millis(took))
		select {
		case err := <-begun:
			if more = false; err != nil {
				return nil, nil, fmt.Errorf("the new streams: %w", err)
			}
		default:
		}
	}
	return made, last, nil
}

// delays records the longest time that a change waited for the loop, and the longest commit of a change.
func (b *bench) delays(p *plane, made []time.Time) error {
	commits, err := p.takeCommits()
	if err != nil {
		return err
	}
	waited, worked := time.Duration(0), time.Duration(0)
	for _, c := range commits {
		if c.Objects[sourceName] == 0 || len(made) == 0 {
			continue
		}
		waited, worked = max(waited, c.At.Sub(made[0])), max(worked, c.Duration)
		made = made[1:]
	}
	b.record("building-10k/waited-max", millis(waited))
	b.record("building-10k/commit-max", millis(worked))
	return nil
}
