package main

import (
	"maps"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func coldSmall(b *bench) error {
	size := b.smallSize()
	if err := b.cold("cold-1k", "cpu", b.sizes.small, size, b.reps(5)); err != nil {
		return err
	}
	size.conns = size.streams
	return b.cold("cold-1k", "cpu-own-tcp", b.sizes.small, size, b.reps(3))
}

func coldLarge(b *bench) error {
	return b.cold("cold-10k", "cpu", b.sizes.large, fleetSize{streams: wide, conns: wide, variant: delta}, b.reps(3))
}

// cold measures streams that connect all at once to a server that has its rows and has built nothing yet.
func (b *bench) cold(name, figure string, services int, size fleetSize, reps int) error {
	b.release()
	scripts, err := b.learned(services, 0, wide)
	if err != nil {
		return err
	}
	one := func() error {
		p, err := serve(b.world(services))
		if err != nil {
			return err
		}
		defer p.close()
		if err := b.calm(); err != nil {
			return err
		}
		return b.profiled(name+"-"+figure, func() error { return b.comeCold(name, figure, p.addr, size, scripts) })
	}
	for range reps {
		if err := one(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) comeCold(name, figure, addr string, size fleetSize, scripts []*script) error {
	begin, used := time.Now(), cpuTime()
	f, err := connect(addr, size, scripts)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.wait(f.settled, "the first answers"); err != nil {
		return err
	}
	wall := time.Since(begin)
	if err := b.pause(b.sizes.settle / 2); err != nil { // for the last acknowledgements
		return err
	}
	b.record(name+"/"+figure, (cpuTime() - used).Seconds())
	b.record(name+"/wall", wall.Seconds())
	b.record(name+"/bytes", float64(f.totals().bytes)/megabyte)
	return nil
}

// versions collects the resource versions that the clients of a fleet have, by class.
type versions struct {
	mu sync.Mutex
	by map[*script]*[types]map[string]string
}

func (v *versions) watch(s *stream, t resource.Type, list []named) {
	v.mu.Lock()
	defer v.mu.Unlock()
	of := v.by[s.script]
	if of == nil {
		of = new([types]map[string]string)
		v.by[s.script] = of
	}
	if of[t] == nil {
		of[t] = make(map[string]string)
	}
	for _, n := range list {
		of[t][string(n.name)] = string(n.version)
	}
}

// reconnect restarts the server under clients that name the versions they have. They are back in sync when they have
// a change made after the restart.
func reconnect(b *bench) error { return b.reconnect("reconnect-1k", b.smallSize()) }

// reconnectHosts is the same for clients that have virtual hosts as resources of their own.
func reconnectHosts(b *bench) error {
	size := b.smallSize()
	size.split = true
	return b.reconnect("virtualhost-reconnect-1k", size)
}

func (b *bench) reconnect(name string, size fleetSize) error {
	b.release()
	scripts, err := b.learned(b.sizes.small, 0, wide)
	if err != nil {
		return err
	}
	w := b.world(b.sizes.small)
	cold, err := b.rememberVersions(w, scripts, size.split)
	if err != nil {
		return err
	}
	size.reconnect = true
	for range b.reps(5) {
		if err := b.restart(name, w, scripts, size, cold); err != nil {
			return err
		}
	}
	return nil
}

// rememberVersions lets the scripts know the versions they have, and returns the bytes that a cold stream of each takes
// on average.
func (b *bench) rememberVersions(w *world, scripts []*script, split bool) (float64, error) {
	p, err := serve(w)
	if err != nil {
		return 0, err
	}
	defer p.close()
	known := &versions{by: make(map[*script]*[types]map[string]string)}
	f, err := connectWatched(p.addr, fleetSize{streams: len(scripts), conns: len(scripts), variant: delta, split: split}, scripts, known.watch)
	if err != nil {
		return 0, err
	}
	defer f.close()
	if err := f.wait(f.settled, "the first answers"); err != nil {
		return 0, err
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	for c := range maps.Keys(known.by) {
		c.remember(known.by[c])
	}
	return float64(f.totals().bytes) / float64(len(scripts)), nil
}

func (b *bench) restart(name string, w *world, scripts []*script, size fleetSize, cold float64) error {
	p, err := serve(w)
	if err != nil {
		return err
	}
	defer p.close()
	if err := b.calm(); err != nil {
		return err
	}
	return b.profiled(name, func() error { return b.comeBack(name, p, w, scripts, size, cold) })
}

func (b *bench) comeBack(name string, p *plane, w *world, scripts []*script, size fleetSize, cold float64) error {
	begin, used := time.Now(), cpuTime()
	f, err := connect(p.addr, size, scripts)
	if err != nil {
		return err
	}
	defer f.close()
	back := endpointChange().step(w, 0)
	if _, err := f.await(back.round, func() { p.apply(back.edit) }); err != nil {
		return err
	}
	wall := time.Since(begin)
	if err := b.pause(b.sizes.settle / 2); err != nil {
		return err
	}
	b.record(name+"/cpu", (cpuTime() - used).Seconds())
	b.record(name+"/wall", wall.Seconds())
	b.record(name+"/bytes", 100*float64(f.totals().bytes)/(cold*float64(size.streams)))
	up := 0
	for i := range size.streams {
		for _, t := range order {
			up += len(scripts[i%len(scripts)].reconnects[t])
		}
	}
	b.record(name+"/up", float64(up)/megabyte)
	return nil
}
