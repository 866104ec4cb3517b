package query

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// TestElementAfterChanges checks that Element finds an element again, or reports that it is gone, after changes of the collection.
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
		t.Errorf("s10|1 depends on %v, want its service and its rule", got)
	}
	settle(func(tx *store.Txn) { w.services.Delete(tx, "s10"); w.services.Set(tx, "added", service{Port: 2}) })
	if got := rows("s10|1"); got != nil {
		t.Errorf("a removed output depends on %v", got)
	}
	if got := rows("added|1"); !slices.Contains(got, any("added")) || slices.Contains(got, any("s10")) {
		t.Errorf("the element in the reused slot depends on %v", got)
	}
	settle(func(tx *store.Txn) { w.services.Set(tx, "s10", service{Port: 2}) })
	if got := rows("s10|1"); !slices.Contains(got, any("s10")) {
		t.Errorf("the element that was added again depends on %v", got)
	}
}
