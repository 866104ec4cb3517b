package query

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// TestIncrementalMatchesNaive compares the graph with the naive evaluator over random histories: rows of all tables change,
// classes are added and removed, commits interrupt first builds, and cells panic and recover.
func TestIncrementalMatchesNaive(t *testing.T) {
	for _, o := range []Options{
		{Strict: true},
		{Strict: true, Workers: 4, ParallelFrom: 1},
	} {
		t.Run(fmt.Sprintf("workers=%d", o.Workers), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { runHistory(t, o) })
		})
	}
}

type history struct {
	*fixture
	published map[string]state
	release   map[string]func()
	problems  *omap.Map[omap.Name, text]
}

func runHistory(t *rapid.T, o Options) {
	h := &history{fixture: newFixture(o), published: map[string]state{}, release: map[string]func(){}}
	h.g.options.Portion = rapid.IntRange(1, 4).Draw(t, "portion") // so that commits interrupt first builds of collections too
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0:
			h.join(rapid.SampledFrom(classNames).Draw(t, "class"))
		case 1:
			h.leave(rapid.SampledFrom(classNames).Draw(t, "class"))
		case 2:
			h.g.Slice(rapid.IntRange(1, 20).Draw(t, "cells"))
		case 3:
			h.toggleProblems()
		default:
			h.g.Commit(func(tx *store.Txn) {
				for range rapid.IntRange(1, 6).Draw(t, "writes") {
					h.write(t, tx)
				}
			})
		}
		h.glance(t)
		if rapid.Bool().Draw(t, "settle") {
			h.settle(t)
		}
	}
	h.settle(t)
	if h.problems != nil {
		h.toggleProblems()
	}
	for c := range h.release {
		h.leave(c)
	}
	h.settle(t)
	if cells := h.g.Cells(); len(cells) > 0 {
		t.Fatalf("cells are left after all roots are gone: %v", cells)
	}
}

var classNames = []string{"n0", "n1", "n2", "n3"}

func (h *history) join(class string) {
	if h.release[class] == nil {
		h.release[class] = h.classes.Observe(class, func(s state, _ bool) { h.published[class] = s })
	}
}

func (h *history) leave(class string) {
	if release := h.release[class]; release != nil {
		release()
		delete(h.release, class)
		delete(h.published, class)
	}
}

func (h *history) toggleProblems() {
	if h.problems != nil {
		h.release["problems"]()
		delete(h.release, "problems")
		h.problems = nil
		return
	}
	h.problems = new(omap.Map[omap.Name, text])
	seen := h.problems
	h.release["problems"] = h.fixture.problems.Observe("", func(m omap.Map[omap.Name, text]) { *seen = m })
}

func (h *history) write(t *rapid.T, tx *store.Txn) {
	host := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "quiet"}).Draw(t, "host")
	layer := rapid.SampledFrom([]string{"", "", "n0", "n1", "n2"}).Draw(t, "layer")
	switch rapid.IntRange(0, 8).Draw(t, "write") {
	case 0, 1:
		h.services.Set(tx, host, service{
			Layer: layer, Port: rapid.IntRange(0, 4).Draw(t, "port"),
			VIP: rapid.SampledFrom([]string{"", "10.0.0.1", "10.0.0.2"}).Draw(t, "vip"),
		})
	case 2:
		h.services.Delete(tx, host)
	case 3, 4:
		h.endpoints.Set(tx, host, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "endpoint"))
	case 5, 6:
		policy := rapid.SampledFrom([]string{"p", "q", "p", "q", "p", "q", "panic"}).Draw(t, "policy")
		h.rules.Set(tx, rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(t, "rule"), rule{Host: host, Layer: layer, Policy: policy})
	case 7:
		h.rules.Delete(tx, rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(t, "rule"))
	case 8:
		h.settings.Set(tx, "every cluster", rapid.SampledFrom([]string{"", "s", "t"}).Draw(t, "setting"))
	}
}

// glance compares the results of a glancing reader, also during first builds, with the naive evaluator, and checks that the
// reader creates no cells.
func (h *history) glance(t *rapid.T) {
	if len(h.g.Faults()) > 0 {
		return
	}
	before := fmt.Sprint(h.g.Cells())
	for _, class := range classNames {
		got, _ := h.classes.Get(h.g.Glance(), class)
		if want, _ := h.classes.Get(h.g.Naive(), class); !got.equal(want) {
			t.Fatalf("class %s at a glance:\n got %v\nwant %v", class, got, want)
		}
	}
	if after := fmt.Sprint(h.g.Cells()); after != before {
		t.Fatalf("the glancing reader created cells: %s, before %s", after, before)
	}
}

// settle completes all builds and compares every root with the naive evaluator.
func (h *history) settle(t *rapid.T) {
	for h.g.Slice(7) {
	}
	if err := h.g.CheckEdges(); err != nil {
		t.Fatal(err)
	}
	if len(h.g.Faults()) > 0 {
		return // a failed cell keeps its last good value
	}
	cold := h.g.Naive()
	for class := range h.release {
		if class == "problems" {
			want := h.fixture.problems.Get(cold, "")
			if h.problems.Hash() != want.Hash() {
				t.Fatalf("problems differ from the naive evaluator's")
			}
			continue
		}
		got, published := h.published[class]
		if want, _ := h.classes.Get(cold, class); !published || !got.equal(want) {
			t.Fatalf("class %s, published %v:\n got %v\nwant %v", class, published, got, want)
		}
	}
}
