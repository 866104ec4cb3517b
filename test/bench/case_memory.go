package main

import (
	"errors"

	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
)

func derived(b *bench) error {
	b.release()
	if err := b.derive("derived-10k-cluster-names", newWorld(b.sizes.large, true)); err != nil {
		return err
	}
	return b.derive("derived-10k", b.world(b.sizes.large))
}

// derive measures the memory of the rows of a world, and the memory that 20 classes add, and 20 further ones.
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
		if err := p.inspect(func(v *loop.View) { cells = sum(v.Graph.Cells()) }); err != nil {
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
