package query

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// TestDependents: the roots above a row are found, and no cell that only an index leads to.
func TestDependents(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) {
		w.fill(tx, 20, 0)
		w.services.Set(tx, "own", service{Layer: "n1", VIP: "9.9.9.9", Port: 1})
	})
	for _, class := range []string{"n0", "n1"} {
		w.classes.Observe(class, func(state, bool) {})
	}
	w.finish()
	above := func(host string, row store.Table[string, service]) (classes []string) {
		id, ok := row.Leaf(host)
		if !ok {
			t.Fatal("the row has no ID")
		}
		seen := map[ID]bool{}
		for cell := range w.g.Dependents([]ID{id}) {
			if seen[cell] {
				t.Errorf("cell %d is yielded twice", cell)
			}
			seen[cell] = true
			if k, ok := w.classes.KeyOf(cell); ok {
				classes = append(classes, k)
			}
			if v, ok := w.merged.KeyOf(cell); ok && v.Host != host {
				t.Errorf("the cell of %s is found, which has nothing to do with %s", v.Host, host)
			}
		}
		slices.Sort(classes)
		return classes
	}
	if got := above("s10", w.services); !slices.Equal(got, []string{"n0", "n1"}) {
		t.Errorf("above a service that all see: %v", got)
	}
	if got := above("own", w.services); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("above a service that one namespace sees: %v", got)
	}
	if _, ok := w.services.Leaf("never mentioned"); ok {
		t.Error("a row that never was has an ID")
	}
}
