package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// newSettings returns a store with a table of texts, and a table of pods with an index over it.
func newSettings() (*DB, Table[string, string], Table[string, pod], Index[string, omap.Name]) {
	db := New()
	settings := NewTable[string](db, "settings", func(a, b string) bool { return a == b })
	pods := NewTable[string](db, "pods", func(a, b pod) bool { return a == b })
	zones := NewIndex(pods, "zones", func(_ string, p pod, add func(string, omap.Name)) { add(p.app, omap.Name(p.zone)) })
	return db, settings, pods, zones
}

func commit(db *DB, write func(tx *Txn)) []ID {
	tx := db.Begin()
	write(tx)
	_, touched := tx.Commit()
	return touched
}

// TestSnapshot checks that later writes do not change a snapshot, and that another store can load it.
func TestSnapshot(t *testing.T) {
	db, settings, pods, _ := newSettings()
	commit(db, func(tx *Txn) {
		for i := range 600 { // several pages
			settings.Set(tx, fmt.Sprint(i), "old")
		}
		pods.Set(tx, "a", pod{"web", "z1"})
	})
	s := db.Snapshot()
	commit(db, func(tx *Txn) {
		settings.Set(tx, "1", "new")
		settings.Delete(tx, "2")
		settings.Set(tx, "more", "new")
		pods.Set(tx, "a", pod{"web", "z2"})
	})
	other, copied, copiedPods, zones := newSettings()
	if err := s.Load(other); err != nil {
		t.Fatal(err)
	}
	one, _ := copied.Peek("1")
	two, _ := copied.Peek("2")
	if _, more := copied.Peek("more"); one != "old" || two != "old" || more || copied.Len() != 600 || s.Revision != 1 {
		t.Errorf("the copy has %d rows, 1 is %q, 2 is %q", copied.Len(), one, two)
	}
	if p, _ := copiedPods.Peek("a"); p.zone != "z1" || zones.Peek("web").Len() != 1 || !zones.Peek("web").Has("z1") {
		t.Errorf("the copy has pod %+v, and its index the zones %v", p, zones.Peek("web"))
	}
	if now, _ := settings.Peek("1"); now != "new" {
		t.Errorf("the row that was written after the snapshot is %q", now)
	}
	foreign, _, _ := newPods()
	if err := s.Load(foreign); err == nil {
		t.Error("a store with other tables took the snapshot")
	}
}

// TestJournal checks that the journal holds the last commits that fit, with the old and new rows.
func TestJournal(t *testing.T) {
	db, settings, _, _ := newSettings()
	db.KeepJournal(3)
	set := func(k, v string) func(tx *Txn) { return func(tx *Txn) { settings.Set(tx, k, v) } }
	commit(db, set("a", "1"))
	commit(db, func(tx *Txn) { set("a", "2")(tx); settings.Delete(tx, "a") })
	commit(db, set("b", "1"))
	expect := func(want string) {
		t.Helper()
		got := ""
		for _, e := range db.Journal() {
			got += fmt.Sprintf("%d:", e.Revision)
			for _, c := range e.Changes {
				old, had := c.Old()
				now, has := c.New()
				got += fmt.Sprintf(" %s %v %v/%v -> %v/%v", c.Table(), c.Key(), old, had, now, has)
			}
			got += fmt.Sprintf(" omitted %d\n", e.Omitted)
		}
		if got != want {
			t.Errorf("the journal is\n%swant\n%s", got, want)
		}
	}
	expect("2: settings a 1/true -> 2/true settings a 2/true -> <nil>/false omitted 0\n3: settings b <nil>/false -> 1/true omitted 0\n")
	commit(db, func(tx *Txn) {
		for _, e := range db.Journal() {
			for i := range e.Changes {
				e.Changes[len(e.Changes)-1-i].Revert(tx)
			}
		}
	})
	a, _ := settings.Peek("a")
	if _, b := settings.Peek("b"); a != "1" || b {
		t.Errorf("after all was reverted a is %q and b is there: %v", a, b)
	}
	commit(db, func(tx *Txn) {
		for i := range 4 {
			settings.Set(tx, fmt.Sprint(i), "1")
		}
	})
	if j := db.Journal(); j[len(j)-1].Omitted != 4 || len(j[len(j)-1].Changes) != 0 {
		t.Errorf("a commit that does not fit is %+v", j[len(j)-1])
	}
}

// TestOrder checks that equal histories report changed leaves in the same order, including index groups.
func TestOrder(t *testing.T) {
	touched := func() (leaves []string) {
		db, pods, _ := newPods()
		for _, id := range commit(db, func(tx *Txn) {
			for i := range 50 {
				pods.Set(tx, fmt.Sprint(i), pod{fmt.Sprint("app ", i), "z"})
			}
		}) {
			leaf := db.Describe(id)
			leaves = append(leaves, fmt.Sprint(leaf.Space, leaf.Key))
		}
		return leaves
	}
	first := touched()
	for range 5 {
		if again := touched(); !slices.Equal(again, first) {
			t.Fatalf("the leaves are %q, were %q", again, first)
		}
	}
}
