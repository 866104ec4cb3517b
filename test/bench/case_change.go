package main

import (
	"fmt"
	"time"
)

// pass is the cost of a number of changes, one after the other.
type pass struct {
	cpu   time.Duration
	last  []float64 // per change: ms until the last stream had it
	sent  totals
	extra float64 // resources and removals per stream and change beside those needed
}

// changes makes n changes of a kind, each after all streams have the one before.
func (m *mesh) changes(b *bench, f *fleet, c change, n int) (*pass, error) {
	local := c.before != nil || c.after != nil
	first := m.edits[c.name]
	if local {
		first = 0
	} else {
		m.edits[c.name] += n
	}
	if c.before != nil {
		if _, err := m.make(f, c.before(m.world, n), new(int)); err != nil {
			return nil, err
		}
		if err := m.quiet(b); err != nil {
			return nil, err
		}
	}
	p := &pass{}
	want := 0
	before, begin := f.totals(), cpuTime()
	for i := first; i < first+n; i++ {
		last, err := m.make(f, c.step(m.world, i), &want)
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", c.name, i, err)
		}
		p.last = append(p.last, millis(last))
	}
	if err := b.pause(b.sizes.settle / 2); err != nil { // for acknowledgements, and for messages that should not come
		return nil, err
	}
	p.cpu = (cpuTime() - begin) / time.Duration(n)
	p.sent = f.totals().minus(before)
	p.extra = float64(max(0, p.sent.things()-want)) / float64(n*len(f.streams))
	if c.after != nil {
		_, err := m.make(f, c.after(m.world, n), new(int))
		return p, err
	}
	return p, nil
}

// make makes one change and waits until everyone concerned has it. It adds the resources that the change may send to allowed.
func (m *mesh) make(f *fleet, s step, allowed *int) (time.Duration, error) {
	last, err := f.await(s.round, func() { m.plane.apply(s.edit) })
	for t := range s.round.need {
		*allowed += (s.round.need[t] + s.round.may[t]) * s.round.concerned
	}
	return last, err
}

// distribution measures a kind of change on the way to the clients, in repetitions of n changes.
func (b *bench) distribution(name string, m *mesh, f *fleet, c change, reps, n int, cpuUnit, byteUnit float64) error {
	if _, err := m.changes(b, f, c, min(n, 3)); err != nil { // the first ones grow buffers
		return err
	}
	for range reps {
		if err := m.quiet(b); err != nil {
			return err
		}
		var p *pass
		err := b.profiled(name, func() (err error) {
			p, err = m.changes(b, f, c, n)
			return err
		})
		if err != nil {
			return err
		}
		b.record(name+"/cpu", p.cpu.Seconds()/cpuUnit)
		b.record(name+"/last-p50", median(p.last))
		b.record(name+"/last-p99", quantile(p.last, 0.99))
		b.record(name+"/bytes", float64(p.sent.bytes)/float64(n)/byteUnit)
		b.record(name+"/extra", p.extra)
	}
	return nil
}

const (
	second      = 1.0
	millisecond = 1e-3
	megabyte    = 1e6
	kilobyte    = 1e3
)

func (b *bench) smallSize() fleetSize {
	return fleetSize{streams: b.sizes.streams, conns: b.conns, variant: delta}
}

func endpoints(b *bench) error {
	own := b.smallSize()
	own.conns = own.streams
	m, err := b.settled(b.sizes.small, own)
	if err != nil {
		return err
	}
	reps, n := b.reps(5), b.reps(60)
	for range reps {
		if err := m.quiet(b); err != nil {
			return err
		}
		p, err := m.changes(b, m.fleet, endpointChange(), n)
		if err != nil {
			return err
		}
		b.record("endpoint-1k/cpu-own-tcp", millis(p.cpu))
		b.record("endpoint-1k/last-p50-own-tcp", median(p.last))
	}
	if m, err = b.settled(b.sizes.small, b.smallSize()); err != nil {
		return err
	}
	return b.distribution("endpoint-1k", m, m.fleet, endpointChange(), reps, n, millisecond, kilobyte)
}

func (b *bench) routesSmall() error {
	const name = "virtualservice-1k"
	if err := b.kernel(name, b.world(b.sizes.small), routeChange()); err != nil {
		return err
	}
	m, err := b.settled(b.sizes.small, b.smallSize())
	if err != nil {
		return err
	}
	return b.distribution(name, m, m.fleet, routeChange(), b.reps(5), 3, second, megabyte)
}

// hostsSmall is routesSmall for clients that get virtual hosts as resources of their own.
func (b *bench) hostsSmall() error {
	size := b.smallSize()
	size.split = true
	m, err := b.settled(b.sizes.small, size)
	if err != nil {
		return err
	}
	for name, c := range map[string]change{"virtualhost-1k": routeChange(), "virtualhost-add-1k": serviceAdded(), "virtualhost-remove-1k": serviceRemoved()} {
		if err := b.distribution(name, m, m.fleet, c, b.reps(5), b.reps(20), millisecond, kilobyte*float64(size.streams)); err != nil {
			return err
		}
	}
	return nil
}

// hostsLarge is routesLarge for such clients.
func (b *bench) hostsLarge() error {
	m, err := b.settled(b.sizes.large, fleetSize{streams: wide, conns: wide, variant: delta, split: true})
	if err != nil {
		return err
	}
	return b.distribution("virtualhost-10k", m, m.fleet, routeChange(), b.reps(5), b.reps(20), millisecond, kilobyte*wide)
}

func (b *bench) routesLarge() error {
	const name = "virtualservice-10k"
	if err := b.kernel(name, b.world(b.sizes.large), routeChange()); err != nil {
		return err
	}
	if err := b.kernel(name+"-cluster-names", newWorld(b.sizes.large, true), routeChange()); err != nil {
		return err
	}
	if b.got["virtualservice-1k/cells"] == nil {
		if err := b.kernel("virtualservice-1k", b.world(b.sizes.small), routeChange()); err != nil {
			return err
		}
	}
	b.beyond(name+"/cells-beyond-1k", "virtualservice-1k/cells", name+"/cells")
	size := fleetSize{streams: wide, conns: wide, variant: delta}
	m, err := b.settled(b.sizes.large, size)
	if err != nil {
		return err
	}
	return b.distribution(name, m, m.fleet, routeChange(), b.reps(5), 3, second, megabyte)
}

func policies(b *bench) error { return b.small("destinationrule-1k", policyChange()) }

func additions(b *bench) error {
	return b.small("service-add-1k", serviceAdded())
}

func removals(b *bench) error { return b.small("service-remove-1k", serviceRemoved()) }

// small measures a kind of change with 1,000 services, and counts its cells with 10,000 too.
func (b *bench) small(name string, c change) error {
	if err := b.kernel(name, b.world(b.sizes.small), c); err != nil {
		return err
	}
	if err := b.kernel(name+"-at-10k", b.world(b.sizes.large), c); err != nil {
		return err
	}
	b.beyond(name+"/cells-beyond-at-10k", name+"/cells", name+"-at-10k/cells")
	m, err := b.settled(b.sizes.small, b.smallSize())
	if err != nil {
		return err
	}
	return b.distribution(name, m, m.fleet, c, b.reps(3), b.reps(20), millisecond, megabyte)
}

// beyond records how many more cells the same changes ran in the larger mesh.
func (b *bench) beyond(figure, small, large string) {
	for i, v := range b.got[large] {
		b.record(figure, max(0, v-b.got[small][i]))
	}
}

// scopes1k has a second fleet, of the namespaces with a Sidecar: of 500 and 25 clients the change concerns 5.
func scopes1k(b *bench) error {
	const name, classes = "sidecar-1k", 5
	for _, k := range []struct {
		name     string
		services int
	}{{name, b.sizes.small}, {name + "-at-10k", b.sizes.large}} {
		if err := b.kernel(k.name, b.world(k.services), scopeChange()); err != nil {
			return err
		}
	}
	b.beyond(name+"/cells-beyond-at-10k", name+"/cells", name+"-at-10k/cells")
	scoped, err := b.learned(b.sizes.small, firstScoped, classes)
	if err != nil {
		return err
	}
	m, err := b.settled(b.sizes.small, b.smallSize())
	if err != nil {
		return err
	}
	f, err := connect(m.plane.addr, fleetSize{streams: 5 * classes, conns: classes, variant: delta, first: b.sizes.streams}, scoped)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.wait(f.settled, "the first answers"); err != nil {
		return err
	}
	others := m.fleet.totals().responses
	if err := b.distribution(name, m, f, scopeChange(), b.reps(3), b.reps(20), millisecond, megabyte); err != nil {
		return err
	}
	b.record(name+"/extra", float64(m.fleet.totals().responses-others))
	return nil
}

// noop hands over all objects once more, parsed again and with other positions, as after a rewrite of a file. No
// stream may receive anything.
func noop(b *bench) error {
	m, err := b.settled(b.sizes.small, b.smallSize())
	if err != nil {
		return err
	}
	for range b.reps(3) {
		same, err := m.plane.rewritten()
		if err != nil {
			return err
		}
		if _, err := m.plane.takeCommits(); err != nil {
			return err
		}
		before := m.fleet.totals()
		m.plane.apply(same)
		commits, err := m.plane.takeCommits()
		if err != nil {
			return err
		}
		cells := 0
		for _, c := range commits {
			cells += sum(c.Cells)
		}
		if err := b.pause(b.sizes.settle); err != nil { // for bytes that should not come
			return err
		}
		b.record("noop-1k/cells", float64(cells))
		b.record("noop-1k/bytes", float64(m.fleet.totals().minus(before).bytes))
	}
	return nil
}
