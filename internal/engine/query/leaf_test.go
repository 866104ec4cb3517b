package query

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// TestLeafSharedInBatch runs two cells in one batch that read the same absent row. One of them aborts, or no longer reads the
// row. The row's slot must stay assigned, because another row in that slot would be mistaken for it.
func TestLeafSharedInBatch(t *testing.T) {
	for _, how := range []string{"gives up", "stops reading"} {
		t.Run(how, func(t *testing.T) {
			db := store.New()
			rows := store.NewTable[string](db, "rows", same[string])
			all := store.NewIndex(rows, "all", func(k, _ string, add func(string, omap.Name)) { add("", omap.Name(k)) })
			switches := store.NewTable[string](db, "switches", same[string])
			options := store.NewTable[string](db, "options", same[string])
			g := New(db, Options{Strict: true})
			elem := Define(g, "elem", sameTexts, func(r *Reader, k string) ([]text, bool) {
				options.Get(r, "of "+k)
				return []text{{k, ""}}, true
			})
			col := Each(g, "col", func(r *Reader, _ string) omap.Map[omap.Name, omap.Unit] { return all.Group(r, "") }, elem,
				func(_ string, e omap.Name) string { return string(e) })
			user := Define(g, "user", same[string], func(r *Reader, k string) (string, bool) {
				on, _ := switches.Get(r, k)
				if on == "off" {
					return "off", true
				}
				v, _ := options.Get(r, "shared")
				if on == "collection" {
					col.Get(r, "")
				}
				return v, true
			})
			other := Define(g, "other", same[string], func(r *Reader, _ string) (string, bool) { return options.Get(r, "another") })
			got := map[string]string{}
			first := map[string]string{"a": "collection", "b": ""}
			if how == "stops reading" {
				first = map[string]string{"a": "", "b": "off"}
			}
			g.Commit(func(tx *store.Txn) {
				rows.Set(tx, "x", "")
				for k, v := range first {
					switches.Set(tx, k, v)
				}
			})
			for k := range first {
				user.Observe(k, func(v string, _ bool) { got[k] = v })
			}
			g.Slice(2)
			if how == "stops reading" {
				g.Commit(func(tx *store.Txn) { switches.Set(tx, "a", "off"); switches.Set(tx, "b", "") })
			}
			other.Observe("", func(string, bool) {}) // takes the next free slot
			for g.Slice(100) {
			}
			if err := g.CheckEdges(); err != nil {
				t.Fatal(err)
			}
			g.Commit(func(tx *store.Txn) { options.Set(tx, "shared", "now") })
			for k := range first {
				if want, _ := user.Get(g.Naive(), k); got[k] != want {
					t.Errorf("user %s has %q, want %q like the naive evaluator", k, got[k], want)
				}
			}
		})
	}
}

// TestLeavesAreReleased checks that a leaf is released if only an aborted run has read it.
func TestLeavesAreReleased(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	all := store.NewIndex(rows, "all", func(k, _ string, add func(string, omap.Name)) { add("", omap.Name(k)) })
	options := store.NewTable[string](db, "options", same[string])
	g := New(db, Options{Strict: true})
	elem := Define(g, "elem", sameTexts, func(r *Reader, k string) ([]text, bool) { return []text{{k, ""}}, true })
	col := Each(g, "col", func(r *Reader, _ string) omap.Map[omap.Name, omap.Unit] { return all.Group(r, "") }, elem,
		func(_ string, e omap.Name) string { return string(e) })
	runs := 0
	var once store.ID
	user := Define(g, "user", same[int], func(r *Reader, _ string) (int, bool) {
		if runs++; runs == 1 { // like a query that first reads a row which it does not need in the end
			options.Get(r, "once")
			once = r.reads[len(r.reads)-1]
		}
		return col.Get(r, "").Len(), true
	})
	g.Commit(func(tx *store.Txn) { rows.Set(tx, "x", "") })
	user.Observe("", func(int, bool) {})
	for g.Slice(10) {
	}
	if runs != 2 || db.InUse(once) {
		t.Errorf("the cell ran %d times, want 2; what only the first run read is kept: %v", runs, db.InUse(once))
	}
	if err := g.CheckEdges(); err != nil {
		t.Error(err)
	}
}
