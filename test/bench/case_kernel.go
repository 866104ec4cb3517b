package main

import (
	"fmt"
)

// kernel counts the cells that a kind of change runs, and the time from taking it in to handing out the class states,
// with 20 classes and no streams.
func (b *bench) kernel(name string, w *world, c change) error {
	p, err := newPlane(w)
	if err != nil {
		return err
	}
	defer p.close()
	list := make([]int, wide)
	for i := range list {
		list[i] = i
	}
	if c.scoped {
		list = append(list, firstScoped, firstScoped+1, firstScoped+2, firstScoped+3, firstScoped+4)
	}
	if err := p.join(list...); err != nil {
		return err
	}
	const n = 24
	if c.before != nil {
		p.apply(c.before(w, n).edit)
	}
	if _, err := p.takeCommits(); err != nil {
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	for i := range n {
		p.apply(c.step(w, i).edit)
		commits, err := p.takeCommits()
		if err != nil {
			return err
		}
		if len(commits) != 1 {
			return fmt.Errorf("%s %d made %d commits, want one", c.name, i, len(commits))
		}
		b.record(name+"/cells", float64(sum(commits[0].Cells)))
		b.record(name+"/ready", millis(commits[0].Duration))
	}
	return nil
}

func sum(cells map[string]int) int {
	n := 0
	for _, k := range cells {
		n += k
	}
	return n
}
