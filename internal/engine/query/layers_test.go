package query

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// stacked is a fixture in which each namespace has its own clusters above common ones, read one by one and as a merged map.
type stacked struct {
	*fixture
	layers Layers[string, omap.Name, text]
	single Query[view, string]
	total  Query[string, omap.Map[omap.Name, text]]
}

func newStacked(o Options) *stacked {
	w := &stacked{fixture: newFixture(o)}
	w.layers = DefineLayers(w.g, "layers", func(r *Reader, ns string) []omap.Map[omap.Name, text] {
		own := w.clusters.Get(r, ns)
		if own.Len() == 0 { // so that lists differ in length
			return []omap.Map[omap.Name, text]{w.clusters.Get(r, "")}
		}
		return []omap.Map[omap.Name, text]{own, w.clusters.Get(r, "")}
	})
	w.single = Define(w.g, "single", same[string], func(r *Reader, v view) (string, bool) {
		t, ok := w.layers.Get(r, v.Layer, omap.Name(v.Host))
		return t.body, ok
	})
	w.total = Define(w.g, "total", omap.Map[omap.Name, text].Equal, func(r *Reader, ns string) (omap.Map[omap.Name, text], bool) {
		return w.layers.Merged(r, ns), true
	})
	return w
}

// TestLayersMatchNaive compares reads of layers with the naive evaluator over random histories.
func TestLayersMatchNaive(t *testing.T) {
	for _, o := range []Options{{Strict: true}, {Strict: true, Workers: 4, ParallelFrom: 1}} {
		t.Run(fmt.Sprintf("workers=%d", o.Workers), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				o.Portion = rapid.IntRange(1, 4).Draw(t, "portion")
				layersHistory(t, newStacked(o))
			})
		})
	}
}

func (w *stacked) checkSingle(t *rapid.T, v view, got string) {
	if want, _ := w.single.Get(w.g.Naive(), v); got != want {
		t.Fatalf("%v: got %q, want %q", v, got, want)
	}
}

func (w *stacked) checkTotal(t *rapid.T, namespace string, got omap.Map[omap.Name, text]) {
	if want, _ := w.total.Get(w.g.Naive(), namespace); !got.Equal(want) {
		t.Fatalf("merged layers of %s differ from the naive evaluator's", namespace)
	}
}

func layersHistory(t *rapid.T, w *stacked) {
	h := &history{fixture: w.fixture}
	singles, totals := map[view]*string{}, map[string]*omap.Map[omap.Name, text]{}
	releases := map[any]func(){}
	toggle := func(k any, observe func() func()) {
		if release := releases[k]; release != nil {
			release()
			delete(releases, k)
			return
		}
		releases[k] = observe()
	}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		ns := rapid.SampledFrom(classNames).Draw(t, "of")
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0, 1:
			v := view{rapid.SampledFrom([]string{"a", "b", "c", "b|0", "e"}).Draw(t, "host"), ns}
			toggle(v, func() func() {
				singles[v] = new(string)
				return w.single.Observe(v, func(s string, _ bool) { *singles[v] = s })
			})
		case 2:
			toggle(ns, func() func() {
				totals[ns] = new(omap.Map[omap.Name, text])
				return w.total.Observe(ns, func(m omap.Map[omap.Name, text], _ bool) { *totals[ns] = m })
			})
		case 3:
			h.g.Slice(rapid.IntRange(1, 20).Draw(t, "cells"))
		default:
			h.g.Commit(func(tx *store.Txn) {
				for range rapid.IntRange(1, 6).Draw(t, "writes") {
					h.write(t, tx)
				}
			})
		}
		if rapid.Bool().Draw(t, "go on") {
			continue
		}
		for h.g.Slice(7) {
		}
		if len(h.g.Faults()) > 0 {
			continue
		}
		for k := range releases {
			switch k := k.(type) {
			case view:
				w.checkSingle(t, k, *singles[k])
			case string:
				w.checkTotal(t, k, *totals[k])
			}
		}
	}
	for _, release := range releases {
		release()
	}
	w.checkEmpty(t)
}

// checkEmpty checks that no cell is left when none is observed.
func (w *stacked) checkEmpty(t *rapid.T) {
	for w.g.Slice(1000) {
	}
	if cells := w.g.Cells(); len(cells) > 0 {
		t.Fatalf("cells are left: %v", cells)
	}
}

// TestLayersRunAffectedReadersOnly checks that a change of one key runs only the cells that read that key.
func TestLayersRunAffectedReadersOnly(t *testing.T) {
	w := newStacked(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 200, 2) })
	for i := range 100 {
		w.single.Observe(view{fmt.Sprintf("s%d", i), "n0"}, func(string, bool) {})
	}
	w.total.Observe("n0", func(omap.Map[omap.Name, text], bool) {})
	for w.g.Slice(1000) {
	}
	w.g.Commit(func(tx *store.Txn) { w.endpoints.Set(tx, "s50", "other") })
	cost := w.g.Cost()
	for query, want := range map[string]int{"layers": 1, "layers.entry": 1, "single": 1, "layers.merged": 1, "total": 1} {
		if cost[query] != want {
			t.Errorf("%s ran %d times, want %d; all: %v", query, cost[query], want, cost)
		}
	}
	w.g.Commit(func(tx *store.Txn) { w.endpoints.Set(tx, "s150", "other") })
	if cost := w.g.Cost(); cost["layers.entry"] != 0 || cost["single"] != 0 {
		t.Errorf("a change of what nobody reads alone ran %v", cost)
	}
}
