package main

import (
	"fmt"
	"time"

	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/push"
)

// derived measures what the rows of 10,000 services take, what 20 classes add to them, and 20 further ones.
func derived(b *bench) error {
	b.release()
	w := b.world(b.sizes.large)
	rows := func() float64 {
		before := retained()
		t := state.New(state.Options{Sources: []string{sourceName}})
		tx := t.DB.Begin()
		batch := source.Batch{Source: sourceName, Synced: true}
		for _, o := range w.all {
			batch.Events = append(batch.Events, source.Event{Key: o.Key, Object: o})
		}
		t.Apply(tx, batch)
		tx.Commit()
		batch = source.Batch{}
		size := retained() - before
		if !t.Synced(sourceName) { // and t is alive until here
			return 0
		}
		return size
	}()
	if rows == 0 {
		return fmt.Errorf("the tables are empty")
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
	}
	cells := 0
	if err := p.inspect(func(v *push.View) { cells = sum(v.Graph.Cells()) }); err != nil {
		return err
	}
	b.record("derived-10k/rows", rows/megabyte)
	b.record("derived-10k/heap", (steps[0]-rows)/megabyte)
	b.record("derived-10k/heap-per-class", (steps[1]-steps[0])/wide/megabyte)
	b.record("derived-10k/cells-per-service", float64(cells)/float64(w.services))
	return b.profiled("derived-10k", func() error { return nil })
}

// streamMemory compares streams of the product with streams that receive the same bytes from a bare gRPC server.
func streamMemory(b *bench) error {
	b.release()
	for _, k := range []struct {
		name     string
		services int
		streams  int
	}{{"100", b.sizes.tiny, b.sizes.streams}, {"10k", b.sizes.large, b.sizes.fewer}} {
		for _, v := range []variant{delta, sotw} {
			size := fleetSize{streams: k.streams, conns: b.conns, variant: v, first: wide}
			own, rec, err := b.retainedByStream(k.services, size)
			if err != nil {
				return err
			}
			floor, err := b.retainedByBare(k.services, size, rec)
			if err != nil {
				return err
			}
			b.record("stream-memory/bare", floor/1024)
			b.record("stream-memory/"+v.String()+"-"+k.name, (own-floor)/1024)
		}
	}
	return nil
}

// retainedByStream is what a settled stream of the product retains, with the client's part, and what one was sent.
func (b *bench) retainedByStream(services int, size fleetSize) (float64, *recording, error) {
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
	grown, err := b.growth(p.addr, size, scripts)
	return grown, rec, err
}

func (b *bench) retainedByBare(services int, size fleetSize, rec *recording) (float64, error) {
	scripts, err := b.learned(services, 0, wide)
	if err != nil {
		return 0, err
	}
	s, err := serveBare(size.variant, rec)
	if err != nil {
		return 0, err
	}
	defer s.close()
	return b.growth(s.addr, size, scripts[:1]) // the recording is of the first class
}

// growth is how much memory each of a number of streams retains once it is settled.
func (b *bench) growth(addr string, size fleetSize, scripts []*script) (float64, error) {
	if err := b.pause(2500 * time.Millisecond); err != nil { // what streams share is remembered for two seconds
		return 0, err
	}
	before := retained()
	f, err := connect(addr, size, scripts)
	if err != nil {
		return 0, err
	}
	defer f.close()
	if err := f.wait(f.settled, "the first answers"); err != nil {
		return 0, err
	}
	if err := b.pause(2500 * time.Millisecond); err != nil {
		return 0, err
	}
	after := retained()
	return (after - before) / float64(size.streams), nil
}
