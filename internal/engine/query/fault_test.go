package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// TestNameCollision violates a rule in a graph that is not strict: of several outputs with one name, the output of the
// first element is used, all other outputs are not affected, and the fault is reported until the collision is resolved.
func TestNameCollision(t *testing.T) {
	g, rows, col := newNamed(Options{})
	var got omap.Map[omap.Name, text]
	col.Observe("", func(m omap.Map[omap.Name, text]) { got = m })
	expect := func(when string, want string, faults int) {
		t.Helper()
		var b strings.Builder
		for name, v := range got.All() {
			fmt.Fprintf(&b, "%s of %s, ", name, v.body)
		}
		if b.String() != want || len(g.Faults()) != faults {
			t.Fatalf("%s there is %s with %d faults, want %s with %d", when, b.String(), len(g.Faults()), want, faults)
		}
		if naive := col.Get(g.Naive(), ""); !got.Equal(naive) {
			t.Fatalf("%s the collection differs from the naive evaluator's", when)
		}
		if err := g.CheckEdges(); err != nil {
			t.Fatal(err)
		}
	}
	set := func(k, v string) { g.Commit(func(tx *store.Txn) { rows.Set(tx, k, v) }) }
	set("b", "x")
	set("c", "y")
	for g.Slice(10) {
	}
	expect("at first", "x of b, y of c, ", 0)
	set("c", "x")
	expect("after a collision", "x of b, ", 1)
	if f := g.Faults()[0]; f.Kind != SameName || !strings.Contains(f.Reason, `"x"`) || !f.Kept {
		t.Fatalf("the fault is %+v", f)
	}
	set("d", "z")
	expect("when another element comes", "x of b, z of d, ", 1)
	set("a", "x")
	expect("when an earlier element has the name, too", "x of a, z of d, ", 1)
	g.Commit(func(tx *store.Txn) { rows.Delete(tx, "a") })
	expect("when the winner is gone", "x of b, z of d, ", 1)
	set("b", "w")
	expect("when one is left", "w of b, x of c, z of d, ", 0)
}

// newShared returns a collection whose elements can have the same key, the first letter of the row's name.
func newShared(o Options) (*Graph, store.Table[string, string], Collection[string, text]) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	all := store.NewIndex(rows, "all", func(k, _ string, add func(string, omap.Name)) { add("", omap.Name(k)) })
	byLetter := store.NewIndex(rows, "by letter", func(k, v string, add func(string, omap.Name)) { add(k[:1], omap.Name(v)) })
	g := New(db, o)
	elem := Define(g, "elem", sameTexts, func(r *Reader, letter string) ([]text, bool) {
		body := ""
		for v := range byLetter.Group(r, letter).All() {
			body += string(v)
		}
		return []text{{letter, body}}, true
	})
	col := Each(g, "col", func(r *Reader, k string) omap.Map[omap.Name, omap.Unit] { return all.Group(r, k) }, elem,
		func(_ string, e omap.Name) string { return string(e[:1]) })
	return g, rows, col
}

// TestSameKey checks that elements with one key count as one element while at least one of them exists.
func TestSameKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, rows, col := newShared(Options{Portion: rapid.IntRange(1, 3).Draw(t, "portion")})
		var got omap.Map[omap.Name, text]
		release := col.Observe("", func(m omap.Map[omap.Name, text]) { got = m })
		there := map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a1", "a2", "a3", "b1", "b2", "c"}).Draw(t, "row")
			g.Commit(func(tx *store.Txn) {
				if there[name] = !there[name]; there[name] {
					rows.Set(tx, name, name)
				} else {
					rows.Delete(tx, name)
				}
			})
			if rapid.Bool().Draw(t, "cut") {
				g.Slice(1)
				continue
			}
			for g.Slice(5) {
			}
			if want := col.Get(g.Naive(), ""); !got.Equal(want) {
				t.Fatalf("the result has %d elements, want %d like the naive evaluator", got.Len(), want.Len())
			}
			repeated := there["a1"] && there["a2"] || there["a1"] && there["a3"] || there["a2"] && there["a3"] || there["b1"] && there["b2"]
			if faults := g.Faults(); len(faults) > 0 != repeated || repeated && faults[0].Kind != SameKey {
				t.Fatalf("with the rows %v the faults are %+v", there, faults)
			}
			if err := g.CheckEdges(); err != nil {
				t.Fatal(err)
			}
		}
		release()
		for g.Slice(5) {
		}
		if len(g.Cells()) > 0 || len(g.Faults()) > 0 {
			t.Fatalf("left behind: %v, %v", g.Cells(), g.Faults())
		}
	})
}

// TestSameKeyIsStrict checks that a strict graph panics.
func TestSameKeyIsStrict(t *testing.T) {
	g, rows, col := newShared(Options{Strict: true})
	g.Commit(func(tx *store.Txn) { rows.Set(tx, "a1", ""); rows.Set(tx, "a2", "") })
	col.Observe("", func(omap.Map[omap.Name, text]) {})
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "several elements have the key a") {
			t.Errorf("got %q, want a panic about the key", p)
		}
	}()
	for g.Slice(5) {
	}
}

// TestReadLimit checks that a cell that reads too much has the right result and a fault, if the graph is not strict.
func TestReadLimit(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	g := New(db, Options{})
	greedy := Define(g, "greedy", same[int], func(r *Reader, _ string) (int, bool) {
		limit, _ := rows.Get(r, "limit")
		n := 0
		for ; fmt.Sprint(n) != limit; n++ {
			rows.Get(r, fmt.Sprint("row ", n))
		}
		return n, true
	})
	got := 0
	greedy.Observe("k", func(n int, _ bool) { got = n })
	for _, reads := range []int{readLimit - 1, readLimit, readLimit - 1} {
		g.Commit(func(tx *store.Txn) { rows.Set(tx, "limit", fmt.Sprint(reads)) })
		for g.Slice(5) {
		}
		if f := g.Faults(); got != reads || len(f) > 0 != (reads == readLimit) || len(f) == 1 && (f[0].Kind != Overread || f[0].Query != "greedy") {
			t.Errorf("a cell with %d reads yields %d; faults %+v", reads+1, got, f)
		}
	}
}

// TestFailLimit checks that a run ends that reads far too much, if the graph is not strict: the cell keeps its last good value, a query that
// guards access denies, and the cell recovers.
func TestFailLimit(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	g := New(db, Options{})
	ended := 0
	read := func(r *Reader, k string) (string, bool) {
		limit, _ := rows.Get(r, k)
		n, _ := strconv.Atoi(limit)
		ended = 0
		for range n {
			rows.Get(r, fmt.Sprint("row ", ended))
			ended++
		}
		return limit, true
	}
	kept, denied := Define(g, "kept", same[string], read), Guard(g, "denied", same[string], "deny", read)
	var got, guarded string
	kept.Observe("k", func(v string, _ bool) { got = v })
	denied.Observe("k", func(v string, _ bool) { guarded = v })
	for _, step := range []struct{ reads, kept, denied string }{
		{"10", "10", "10"}, {fmt.Sprint(failLimit), "10", "deny"}, {fmt.Sprint(100 * failLimit), "10", "deny"}, {fmt.Sprint(failLimit - 1), fmt.Sprint(failLimit - 1), fmt.Sprint(failLimit - 1)},
		{"20", "20", "20"},
	} {
		g.Commit(func(tx *store.Txn) { rows.Set(tx, "k", step.reads) })
		for g.Slice(5) {
		}
		if got != step.kept || guarded != step.denied || ended > failLimit {
			t.Errorf("with %s reads the cell has %s and the guard %s after %d reads, want %s and %s", step.reads, got, guarded, ended, step.kept, step.denied)
		}
		failed := slices.ContainsFunc(g.Faults(), func(f Fault) bool { return f.Kind == Panicked && strings.Contains(f.Reason, "things") })
		if failed != (step.denied == "deny") {
			t.Errorf("with %s reads the faults are %+v", step.reads, g.Faults())
		}
	}
	if err := g.CheckEdges(); err != nil {
		t.Error(err)
	}
}

// TestTakeFaults checks that a fault is reported once when it appears and once when it is resolved.
func TestTakeFaults(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) {
		w.fill(tx, 20, 0)
		w.rules.Set(tx, "bad", rule{Host: "s3", Policy: "panic"})
	})
	release := w.classes.Observe("n0", func(state, bool) {})
	w.finish()
	come := w.g.TakeFaults()
	if len(come) != 1 || come[0].Fault == nil || come[0].Fault.Query != "policy" {
		t.Fatalf("first faults: %+v, want the panic of a policy", come)
	}
	w.g.Commit(func(tx *store.Txn) { w.rules.Set(tx, "another", rule{Host: "s3", Policy: "p"}) })
	if again := w.g.TakeFaults(); len(again) != 0 {
		t.Fatalf("reported again: %+v", again)
	}
	w.g.Commit(func(tx *store.Txn) { w.rules.Set(tx, "bad", rule{Host: "s3", Policy: "mended"}) })
	if gone := w.g.TakeFaults(); len(gone) != 1 || gone[0].Fault != nil || gone[0].Cell != come[0].Cell {
		t.Fatalf("faults %+v, want one that is resolved", gone)
	}
	w.g.Commit(func(tx *store.Txn) { w.rules.Set(tx, "bad", rule{Host: "s3", Policy: "panic"}) })
	w.g.TakeFaults()
	release()
	w.finish()
	if gone := w.g.TakeFaults(); len(gone) != 1 || gone[0].Fault != nil {
		t.Fatalf("faults after the cell was freed: %+v, want one that is resolved", gone)
	}
}

// TestGuard checks that a query that guards access denies when its first or a later run panics, also in the naive evaluator.
func TestGuard(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	g := New(db, Options{Strict: true})
	guard := Guard(g, "guard", same[string], "deny", func(r *Reader, k string) (string, bool) {
		v, ok := rows.Get(r, k)
		if v == "panic" {
			panic("a policy that breaks its query")
		}
		return v, ok
	})
	reader := Define(g, "reader", same[string], func(r *Reader, k string) (string, bool) {
		v, ok := guard.Get(r, k)
		return fmt.Sprint(v, ok), true
	})
	var got, direct string
	reader.Observe("k", func(v string, _ bool) { got = v })
	guard.Observe("l", func(v string, ok bool) { direct = fmt.Sprint(v, ok) })
	for _, step := range []struct{ row, want string }{{"panic", "denytrue"}, {"allow", "allowtrue"}, {"panic", "denytrue"}, {"", "true"}} {
		g.Commit(func(tx *store.Txn) { rows.Set(tx, "k", step.row); rows.Set(tx, "l", step.row) })
		for g.Slice(5) {
		}
		naive, _ := reader.Get(g.Naive(), "k")
		if want := strings.ReplaceAll(step.want, "true", " true"); got != strings.TrimSpace(step.want) && got != want || naive != got || direct != got {
			t.Errorf("row %q: read as %q and %q, by the naive evaluator as %q, want %q", step.row, got, direct, naive, step.want)
		}
		if faults := len(g.Faults()); faults > 0 != (step.row == "panic") {
			t.Errorf("row %q: %d faults", step.row, faults)
		}
	}
}
