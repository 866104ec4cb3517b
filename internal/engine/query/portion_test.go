package query

import (
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// TestPortions checks that the first build of a large collection adds one portion at a time, while rows change.
func TestPortions(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.options.Portion = 50
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 300, 0) })
	var got omap.Map[omap.Name, text]
	w.problems.Observe("", func(m omap.Map[omap.Name, text]) { got = m })
	portions, had, linked := 0, 0, 0
	for more := true; more; more = w.g.Slice(1) {
		cell, slot, _ := w.problems.find("")
		if list := w.problems.elements.linked(slot); len(list)-linked > 50 {
			t.Fatalf("%d elements were linked at once, want at most 50", len(list)-linked)
		} else {
			linked = len(list)
		}
		now := cell.val.out.Len()
		if now-had > 50 {
			t.Fatalf("%d elements were merged at once, want at most 50", now-had)
		}
		if had = now; now == 0 || got.Len() > 0 || portions == 4 {
			continue
		}
		portions++
		w.g.Commit(func(tx *store.Txn) {
			w.rules.Set(tx, "r", rule{Host: "s1", Policy: fmt.Sprint(portions)}) // the element is merged already
			w.services.Delete(tx, fmt.Sprintf("s%d", portions))                  // some of these are merged too
			w.services.Set(tx, fmt.Sprintf("t%d", portions), service{Port: 80})
		})
		cell, _, _ = w.problems.find("")
		had = cell.val.out.Len()
	}
	if portions < 4 {
		t.Fatalf("it was built in %d portions, want more", portions)
	}
	if want := w.problems.Get(w.g.Naive(), ""); got.Len() < 250 || !got.Equal(want) {
		t.Fatalf("the result has %d elements, want %d like the naive evaluator", got.Len(), want.Len())
	}
}

// TestNamesMoveBetweenPortions moves a name from a merged element to one that is not merged yet, during the first build of a
// large collection. That is not a name collision.
func TestNamesMoveBetweenPortions(t *testing.T) {
	g, rows, col := newNamed(Options{Strict: true})
	g.options.Portion = 50
	key := func(i int) string { return fmt.Sprintf("k%03d", i) }
	g.Commit(func(tx *store.Txn) {
		for i := range 200 {
			rows.Set(tx, key(i), fmt.Sprint("name ", i))
		}
	})
	var got omap.Map[omap.Name, text]
	col.Observe("", func(m omap.Map[omap.Name, text]) { got = m })
	moved := 0
	for more := true; more; more = g.Slice(1) {
		if cell, _, _ := col.find(""); cell.val.out.Len() == 0 || got.Len() > 0 {
			continue
		}
		g.Commit(func(tx *store.Txn) {
			rows.Delete(tx, key(moved))
			rows.Set(tx, key(10+moved), fmt.Sprint("new ", moved))
			rows.Set(tx, key(149-moved), fmt.Sprint("name ", moved))
			rows.Set(tx, key(139-moved), fmt.Sprint("name ", 10+moved))
		})
		moved++
	}
	if want := col.Get(g.Naive(), ""); moved < 2 || got.Len() != 200-moved || !got.Equal(want) {
		t.Fatalf("after %d changes it has %d elements, want %d like the naive evaluator", moved, got.Len(), want.Len())
	}
	if err := g.CheckEdges(); err != nil {
		t.Fatal(err)
	}
}

// TestElementRemovedBeforeComputed removes an element that is linked but not computed, during the first build of a large collection.
func TestElementRemovedBeforeComputed(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	hidden := store.NewTable[string](db, "seen", same[bool])
	seen := store.NewIndex(hidden, "all seen", func(k string, v bool, add func(string, omap.Name)) {
		if v {
			add("", omap.Name(k))
		}
	})
	g := New(db, Options{Strict: true, Portion: 50})
	elem := Define(g, "elem", sameTexts, func(r *Reader, k string) ([]text, bool) {
		v, ok := rows.Get(r, k) // read in any case, whether or not the output depends on it
		return []text{{k, v}}, ok
	})
	col := Each(g, "col", func(r *Reader, _ string) omap.Map[omap.Name, omap.Unit] { return seen.Group(r, "") }, elem,
		func(_ string, e omap.Name) string { return string(e) })
	key := func(i int) string { return fmt.Sprintf("k%03d", i) }
	g.Commit(func(tx *store.Txn) {
		for i := range 200 {
			rows.Set(tx, key(i), "")
			hidden.Set(tx, key(i), true)
		}
	})
	var got omap.Map[omap.Name, text]
	col.Observe("", func(m omap.Map[omap.Name, text]) { got = m })
	g.Slice(1)
	g.Commit(func(tx *store.Txn) { hidden.Set(tx, key(3), false); hidden.Set(tx, key(4), false) })
	g.Slice(1)
	g.Commit(func(tx *store.Txn) { hidden.Set(tx, key(4), true) })
	for g.Slice(1) {
	}
	if got.Len() != 199 || got.Has(omap.Name(key(3))) || !got.Equal(col.Get(g.Naive(), "")) {
		t.Errorf("the result has %d elements, want 199, without %s: %v", got.Len(), key(3), got.Has(omap.Name(key(3))))
	}
	if err := g.CheckEdges(); err != nil {
		t.Error(err)
	}
}

// newNamed returns a collection whose elements are rows, with outputs named after the content of the rows.
func newNamed(o Options) (*Graph, store.Table[string, string], *collection[string, text]) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	all := store.NewIndex(rows, "all", func(k, _ string, add func(string, omap.Name)) { add("", omap.Name(k)) })
	g := New(db, o)
	elem := Define(g, "elem", sameTexts, func(r *Reader, k string) ([]text, bool) {
		v, ok := rows.Get(r, k)
		return []text{{v, k}}, ok
	})
	col := Each(g, "col", func(r *Reader, k string) omap.Map[omap.Name, omap.Unit] { return all.Group(r, k) }, elem,
		func(_ string, e omap.Name) string { return string(e) })
	return g, rows, col.(*collection[string, text])
}

// TestPortionsOfGroups checks that the first index of a large collection is built one portion at a time, while rows change.
func TestPortionsOfGroups(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.options.Portion = 50
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 300, 0) })
	var got omap.Map[omap.Name, omap.Unit]
	w.byVIP.keys.Observe("", func(m omap.Map[omap.Name, omap.Unit], _ bool) { got = m })
	portions, had := 0, 0
	for more := true; more; more = w.g.Slice(1) {
		cell, _, ok := w.byVIP.find("")
		if !ok {
			continue
		}
		now := len(cell.val.groups)
		if now-had > 50 {
			t.Fatalf("%d groups were added at once, want at most 50", now-had)
		}
		if now == had || got.Len() > 0 || portions == 4 {
			had = now
			continue
		}
		had = now
		portions++
		w.g.Commit(func(tx *store.Txn) {
			w.services.Delete(tx, fmt.Sprintf("s%d", portions)) // some are counted already, some are not
			w.services.Set(tx, fmt.Sprintf("s%d", 100+portions), service{VIP: "10.9.9.9"})
			w.services.Set(tx, fmt.Sprintf("t%d", portions), service{VIP: fmt.Sprintf("10.1.0.%d", portions)})
		})
	}
	if portions < 4 {
		t.Fatalf("it was built in %d portions, want more", portions)
	}
	if want := w.byVIP.Keys(w.g.Naive(), ""); got.Len() < 250 || !got.Equal(want) {
		t.Fatalf("the result has %d groups, want %d like the naive evaluator", got.Len(), want.Len())
	}
	cell, _, _ := w.byVIP.find("")
	for vip := range got.All() {
		if is, want := cell.val.groups[vip].Members(), w.byVIP.Group(w.g.Naive(), "", vip); !is.Equal(want) {
			t.Fatalf("%s has %v, want %v", vip, is, want)
		}
	}
	if err := w.g.CheckEdges(); err != nil {
		t.Fatal(err)
	}
}
