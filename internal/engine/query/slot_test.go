package query

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// probe is a Reader in place of a cell that is the only reader of a row.
type probe struct{ reads []store.ID }

func (p *probe) Read(id store.ID) { p.reads = append(p.reads, id) }
func (*probe) Naive() bool        { return false }
func (*probe) Glancing() bool     { return false }

// freeSlot returns the slot that the next absent row of a table gets.
func freeSlot[V any](t store.Table[string, V]) uint32 {
	p := &probe{}
	t.Get(p, "an absent row")
	return p.reads[0].Slot()
}

// TestReadsOfAbortedRuns checks that a row is released if only an aborted run has read it.
func TestReadsOfAbortedRuns(t *testing.T) {
	db := store.New()
	switches := store.NewTable[string](db, "switches", same[string])
	options := store.NewTable[string](db, "options", same[string])
	all := store.NewIndex(switches, "all", func(k, _ string, add func(string, omap.Name)) { add("", omap.Name(k)) })
	g := New(db, Options{Strict: true})
	elem := Define(g, "elem", sameTexts, func(_ *Reader, k string) ([]text, bool) { return []text{{k, ""}}, true })
	col := Each(g, "col", func(r *Reader, _ string) omap.Map[omap.Name, omap.Unit] { return all.Group(r, "") }, elem,
		func(_ string, e omap.Name) string { return string(e) })
	user := Define(g, "user", same[string], func(r *Reader, k string) (string, bool) {
		if on, _ := switches.Get(r, k); on == "off" {
			return "off", true
		}
		v, _ := options.Get(r, k)
		col.Get(r, "")
		return v, true
	})
	g.Commit(func(tx *store.Txn) { switches.Set(tx, "a", "on") })
	got := ""
	user.Observe("a", func(v string, _ bool) { got = v })
	g.Slice(1) // reads the option, and aborts
	g.Commit(func(tx *store.Txn) { switches.Set(tx, "a", "off") })
	for g.Slice(10) {
	}
	if got != "off" {
		t.Fatalf("got %q, want off", got)
	}
	if n := freeSlot(options); n != 0 {
		t.Errorf("the next absent option takes slot %d: the one that a run read which gave up is kept", n)
	}
}

// TestUnreadDeletedRows checks that deleted rows without readers are released.
func TestUnreadDeletedRows(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	g := New(db, Options{Strict: true})
	g.Commit(func(tx *store.Txn) { rows.Set(tx, "a", "1") })
	g.Commit(func(tx *store.Txn) { rows.Delete(tx, "a") })
	if n := freeSlot(rows); n != 0 {
		t.Errorf("the next absent row takes slot %d: that of the deleted one is kept", n)
	}
}

// TestFirstGroupingThatPanics checks that an index whose first build panics half way is empty, not partial, and is complete once
// the cause of the panic is removed.
func TestFirstGroupingThatPanics(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	all := store.NewIndex(rows, "all", func(k, _ string, add func(string, omap.Name)) { add("", omap.Name(k)) })
	g := New(db, Options{Strict: true, Portion: 2})
	elem := Define(g, "elem", sameTexts, func(r *Reader, k string) ([]text, bool) {
		v, _ := rows.Get(r, k)
		return []text{{k, v}}, true
	})
	col := Each(g, "col", func(r *Reader, _ string) omap.Map[omap.Name, omap.Unit] { return all.Group(r, "") }, elem,
		func(_ string, e omap.Name) string { return string(e) })
	groups := GroupBy(g, "groups", col, func(v text, add func(omap.Name, omap.Name)) {
		if v.body == "bad" {
			panic("a bad entry")
		}
		add(omap.Name(v.body), omap.Name(v.name))
	})
	user := Define(g, "user", same[int], func(r *Reader, group string) (int, bool) {
		return groups.Group(r, "", omap.Name(group)).Len(), true
	})
	g.Commit(func(tx *store.Txn) {
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			rows.Set(tx, k, "good")
		}
		rows.Set(tx, "f", "bad")
	})
	got := -1
	user.Observe("good", func(n int, _ bool) { got = n })
	for g.Slice(1) {
	}
	if got != 0 {
		t.Errorf("the group has %d members while the index is broken, want none", got)
	}
	g.Commit(func(tx *store.Txn) { rows.Set(tx, "f", "good"); rows.Delete(tx, "a") })
	for g.Slice(1) {
	}
	if want, _ := user.Get(g.Naive(), "good"); got != want || want != 5 {
		t.Errorf("the group has %d members, the naive evaluator says %d, want 5", got, want)
	}
}

// TestGroupWithSharedMember checks that the readers of a group do not run when one of several contributors of a member is
// removed, and run when the last one is removed.
func TestGroupWithSharedMember(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	all := store.NewIndex(rows, "all", func(k, _ string, add func(string, omap.Name)) { add("", omap.Name(k)) })
	g := New(db, Options{Strict: true})
	elem := Define(g, "elem", sameTexts, func(r *Reader, k string) ([]text, bool) {
		v, _ := rows.Get(r, k)
		return []text{{k, v}}, true
	})
	col := Each(g, "col", func(r *Reader, _ string) omap.Map[omap.Name, omap.Unit] { return all.Group(r, "") }, elem,
		func(_ string, e omap.Name) string { return string(e) })
	groups := GroupBy(g, "groups", col, func(v text, add func(omap.Name, omap.Name)) { add("all", omap.Name(v.body)) })
	user := Define(g, "user", same[int], func(r *Reader, group string) (int, bool) {
		return groups.Group(r, "", omap.Name(group)).Len(), true
	})
	g.Commit(func(tx *store.Txn) {
		for k, v := range map[string]string{"a": "x", "b": "x", "c": "y"} {
			rows.Set(tx, k, v)
		}
	})
	got := -1
	user.Observe("all", func(n int, _ bool) { got = n })
	for g.Slice(1000) {
	}
	for _, step := range []struct {
		row       string
		runs, has int
	}{{"a", 0, 2}, {"b", 1, 1}} {
		g.Commit(func(tx *store.Txn) { rows.Delete(tx, step.row) })
		if runs := g.Cost()["groups.group"]; runs != step.runs || got != step.has {
			t.Errorf("without %s the group's cell ran %d times and has %d members, want %d and %d", step.row, runs, got, step.runs, step.has)
		}
	}
}
