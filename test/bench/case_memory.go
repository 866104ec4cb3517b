package main

import (
	"errors"

	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/push"
)

func derived(b *bench) error {
	b.release()
	if err := b.derive("derived-10k-cluster-names", newWorld(b.sizes.large, true)); err != nil {
		return err
	}
	return b.derive("derived-10k", b.world(b.sizes.large))
}

// derive measures what the rows of a world take, what 20 classes add to them, and 20 further ones.
func (b *bench) derive(name string, w *world) error {
	rows, err := rowsOf(w)
	if err != nil {
		return err
	}
	before := retained()
	p, err := newPlane(w)
	if err != nil {
		return err
	}
	defer p.close()
	p.present = nil // that is the bench's
	var steps []float64
	for _, first := range []int{0, wide + scopes} { // the namespaces between have Sidecars
		list := make([]int, wide)
		for i := range list {
			list[i] = first + i
		}
		if err := p.join(list...); err != nil {
			return err
		}
		steps = append(steps, retained()-before)
		if len(steps) > 1 {
			continue
		}
		cells := 0
		if err := p.inspect(func(v *push.View) { cells = sum(v.Graph.Cells()) }); err != nil {
			return err
		}
		b.record(name+"/cells-per-service", float64(cells)/float64(w.services))
	}
	b.record(name+"/rows", rows/megabyte)
	b.record(name+"/heap-with-rows", steps[0]/megabyte)
	b.record(name+"/heap", (steps[0]-rows)/megabyte)
	b.record(name+"/heap-per-class", (steps[1]-steps[0])/wide/megabyte)
	return b.profiled(name, func() error { return nil })
}

// rowsOf is the memory that the tables alone take, without the objects they are made of.
func rowsOf(w *world) (float64, error) {
	before := retained()
	t := state.New(state.Options{Sources: []string{sourceName}})
	tx := t.DB.Begin()
	t.Apply(tx, source.Batch{Source: sourceName, Events: (edit{set: w.all}).events(), Synced: true})
	tx.Commit()
	size := retained() - before
	if !t.Synced(sourceName) { // this also keeps t alive until here
		return 0, errors.New("the tables are empty")
	}
	return size, nil
}

// streamMemory compares streams of the product with streams that receive the same bytes from a bare gRPC server.
func streamMemory(b *bench) error {
	b.release()
	for _, k := range []struct {
		figure            string
		services, streams int
		perConn           int
		variant           variant
	}{
		{"delta-100", b.sizes.tiny, b.sizes.streams, 10, delta},
		{"delta-10k", b.sizes.large, b.sizes.fewer, 10, delta},
		{"sotw-100", b.sizes.tiny, b.sizes.streams, 10, sotw},
		{"sotw-10k", b.sizes.large, b.sizes.fewer, 10, sotw},
		{"delta-100-own-tcp", b.sizes.tiny, b.sizes.streams, 1, delta},
	} {
		size := fleetSize{streams: k.streams, conns: k.streams / k.perConn, variant: k.variant, first: wide}
		bare := "stream-memory/bare"
		if k.perConn == 1 {
			bare = "stream-memory/bare-own-tcp"
		}
		// The runtime starts goroutines with the stack that others had need of, on average: 4 KiB more or less for each, by
		// chance. The median of some runs says more than one.
		for range b.reps(3) {
			own, rec, err := b.retainedByStream("stream-memory-"+k.figure, k.services, size)
			if err != nil {
				return err
			}
			floor, err := b.retainedByBare("stream-memory-"+k.figure+"-bare", k.services, size, rec)
			if err != nil {
				return err
			}
			b.record(bare, floor/1024)
			b.record("stream-memory/"+k.figure, (own-floor)/1024)
		}
	}
	return nil
}

// retainedByStream is what a settled stream of the product retains, with the client's part, and what one was sent.
func (b *bench) retainedByStream(name string, services int, size fleetSize) (float64, *recording, error) {
	scripts, err := b.learned(services, 0, wide)
	if err != nil {
		return 0, nil, err
	}
	p, err := serve(b.world(services))
	if err != nil {
		return 0, nil, err
	}
	defer p.close()
	rec := &recording{}
	one := fleetSize{streams: wide, conns: 1, variant: size.variant}
	few, err := connectRecorded(p.addr, one, scripts, rec)
	if err != nil {
		return 0, nil, err
	}
	defer few.close()
	if err := few.wait(few.settled, "the first answers"); err != nil {
		return 0, nil, err
	}
	grown, err := b.growth(name, p.addr, size, scripts)
	return grown, rec, err
}

func (b *bench) retainedByBare(name string, services int, size fleetSize, rec *recording) (float64, error) {
	scripts, err := b.learned(services, 0, wide)
	if err != nil {
		return 0, err
	}
	s, err := serveBare(size.variant, rec)
	if err != nil {
		return 0, err
	}
	defer s.close()
	return b.growth(name, s.addr, size, scripts[:1]) // the recording is of the first class
}

// growth is how much memory each of a number of streams retains once it is settled. What the first ones cost is not
// counted: with them grows what all streams share.
func (b *bench) growth(name, addr string, size fleetSize, scripts []*script) (float64, error) {
	half := size
	half.streams, half.conns = size.streams/2, size.conns/2
	var at [2]float64
	for i := range at {
		half.first = size.first + i*half.streams
		f, err := connect(addr, half, scripts)
		if err != nil {
			return 0, err
		}
		defer f.close()
		if err := f.wait(f.settled, "the first answers"); err != nil {
			return 0, err
		}
		if err := b.pause(b.sizes.forget); err != nil { // what streams share is remembered for two seconds
			return 0, err
		}
		at[i] = retained()
	}
	return (at[1] - at[0]) / float64(half.streams), b.profiled(name, func() error { return nil })
}
