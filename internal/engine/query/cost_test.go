package query

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const costFile = "testdata/cost.txt"

// changes are the kinds of change whose cost is checked. Each is made in a fixture with classes of four namespaces and no pending work.
var changes = []struct {
	name  string
	write func(w *fixture, tx *store.Txn)
}{
	{"endpoint", func(w *fixture, tx *store.Txn) { w.endpoints.Set(tx, "s7", "other") }},
	{"hundred endpoints", func(w *fixture, tx *store.Txn) {
		for i := range 100 {
			w.endpoints.Set(tx, fmt.Sprintf("s%d", i), "many")
		}
	}},
	{"endpoint of a service with an overlay", func(w *fixture, tx *store.Txn) { w.endpoints.Set(tx, "s1", "other") }},
	{"public rule", func(w *fixture, tx *store.Txn) { w.rules.Set(tx, "rs10", rule{Host: "s10", Policy: "edited"}) }},
	{"private rule", func(w *fixture, tx *store.Txn) {
		w.rules.Set(tx, "own2", rule{Host: "s2", Layer: "n2", Policy: "edited"})
	}},
	{"private rule added", func(w *fixture, tx *store.Txn) {
		w.rules.Set(tx, "new", rule{Host: "s33", Layer: "n1", Policy: "new"})
	}},
	{"rule for a host that does not exist", func(w *fixture, tx *store.Txn) {
		w.rules.Set(tx, "stray", rule{Host: "nowhere", Policy: "p"})
	}},
	{"rule whose edit yields the same", func(w *fixture, tx *store.Txn) {
		w.rules.Set(tx, "rs20", rule{Host: "s20", Layer: "n9", Policy: "p"})
		w.rules.Set(tx, "twin", rule{Host: "s20", Policy: "p"})
	}},
	{"service added", func(w *fixture, tx *store.Txn) { w.services.Set(tx, "added", service{VIP: "10.9.9.9", Port: 1}) }},
	{"service removed", func(w *fixture, tx *store.Txn) { w.services.Delete(tx, "s42") }},
	{"service changes its VIP", func(w *fixture, tx *store.Txn) { w.services.Set(tx, "s5", service{VIP: "10.7.7.7", Port: 1}) }},
	{"service changes its port", func(w *fixture, tx *store.Txn) { w.services.Set(tx, "s6", service{VIP: "10.0.0.6", Port: 5}) }},
	{"the same rows again", func(w *fixture, tx *store.Txn) {
		s, _ := w.services.Peek("s3")
		w.services.Set(tx, "s3", s)
		w.endpoints.Set(tx, "s3", "e")
	}},
	{"setting nobody reads", func(w *fixture, tx *store.Txn) { w.settings.Set(tx, "unread", "x") }},
}

// TestCost checks exactly how many cells run for each kind of change, and that the number is equal for 110 and 1,000 services.
func TestCost(t *testing.T) {
	var got strings.Builder
	small, large := costs(t, 110), costs(t, 1000)
	for _, ch := range changes {
		if small[ch.name] != large[ch.name] {
			t.Errorf("%s: the cost depends on the size of the mesh:\n 110: %s\n1000: %s", ch.name, small[ch.name], large[ch.name])
		}
		fmt.Fprintf(&got, "%s: %s\n", ch.name, small[ch.name])
	}
	if *update {
		if err := os.WriteFile(costFile, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(costFile)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("cost differs from %s (if that is intended, rewrite it with -update):\n got\n%swant\n%s", costFile, &got, want)
	}
}

func costs(t *testing.T, services int) map[string]string {
	lines := map[string]string{}
	for _, ch := range changes {
		w := newFixture(Options{Strict: true})
		w.g.Commit(func(tx *store.Txn) { w.fill(tx, services, 4) })
		published := 0
		for _, c := range classNames {
			w.classes.Observe(c, func(s state, _ bool) {
				published++
				if s.base.Len() < services {
					t.Fatalf("%s: the class state has only %d resources, so the test shows nothing", ch.name, s.base.Len())
				}
			})
		}
		for w.g.Slice(1000) {
		}
		published = 0
		before := w.g.Revision()
		w.g.Commit(func(tx *store.Txn) { ch.write(w, tx) })
		lines[ch.name] = fmt.Sprintf("revision +%d, %s published=%d", w.g.Revision()-before, costLine(w.g.Cost()), published)
		if err := w.g.CheckEdges(); err != nil {
			t.Errorf("%s: %v", ch.name, err)
		}
	}
	return lines
}

func costLine(cost map[string]int) string {
	var b strings.Builder
	total := 0
	for _, q := range slices.Sorted(maps.Keys(cost)) {
		fmt.Fprintf(&b, "%s=%d ", strings.ReplaceAll(q, " ", "-"), cost[q])
		total += cost[q]
	}
	return fmt.Sprintf("cells %d: %s", total, b.String())
}
