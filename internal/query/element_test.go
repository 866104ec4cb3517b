package query

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// TestElementAfterChanges: what was found once is found again, or found gone, whatever happened to the elements since.
func TestElementAfterChanges(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 50, 2) })
	w.clusters.Observe("", func(omap.Map[omap.Name, text]) {})
	settle := func(write func(tx *store.Txn)) {
		w.g.Commit(write)
		for w.g.Slice(1000) {
		}
	}
	settle(func(*store.Txn) {})
	rows := func(name omap.Name) []any {
		id, ok := w.clusters.Element("", name)
		if !ok {
			return nil
		}
		return w.g.Rows(id)
	}
	if got := rows("s10|1"); !slices.Contains(got, any("s10")) || !slices.Contains(got, any("rs10")) {
		t.Errorf("s10|1 is made of %v, want its service and its rule", got)
	}
	settle(func(tx *store.Txn) { w.services.Delete(tx, "s10"); w.services.Set(tx, "added", service{Port: 2}) })
	if got := rows("s10|1"); got != nil {
		t.Errorf("what is gone is made of %v", got)
	}
	if got := rows("added|1"); !slices.Contains(got, any("added")) || slices.Contains(got, any("s10")) {
		t.Errorf("what took its slot is made of %v", got)
	}
	settle(func(tx *store.Txn) { w.services.Set(tx, "s10", service{Port: 2}) })
	if got := rows("s10|1"); !slices.Contains(got, any("s10")) {
		t.Errorf("what came back is made of %v", got)
	}
}
