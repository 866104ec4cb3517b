package store

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// recorder is a Reader in place of a cell: it collects the leaves that are read.
type recorder struct{ reads []ID }

func (r *recorder) Read(id ID)  { r.reads = append(r.reads, id) }
func (r *recorder) Naive() bool { return false }

func (r *recorder) Glancing() bool { return false }

// scanner is a Reader that finds groups by scanning.
type scanner struct{}

func (scanner) Read(ID)     {}
func (scanner) Naive() bool { return true }

func (scanner) Glancing() bool { return false }

type pod struct{ app, zone string }

func newPods() (*DB, Table[string, pod], Index[string, omap.Name]) {
	db := New()
	pods := NewTable[string](db, "pods", func(a, b pod) bool { return a == b })
	zones := NewIndex(pods, "zones of app", func(_ string, p pod, add func(string, omap.Name)) { add(p.app, omap.Name(p.zone)) })
	return db, pods, zones
}

func TestCommitWithoutChange(t *testing.T) {
	db, pods, _ := newPods()
	tx := db.Begin()
	pods.Set(tx, "a", pod{"web", "z1"})
	if rev, touched := tx.Commit(); rev != 1 || len(touched) != 2 {
		t.Fatalf("first commit: revision %d, touched %d leaves, want 1 and the row and its group", rev, len(touched))
	}
	tx = db.Begin()
	pods.Set(tx, "a", pod{"web", "z1"})
	pods.Delete(tx, "absent")
	if rev, touched := tx.Commit(); rev != 1 || len(touched) != 0 {
		t.Fatalf("the same row again: revision %d, touched %v", rev, touched)
	}
}

// TestGroupChangesWithMembers checks that a group changes only when its set of members changes, also if several rows contribute the same member.
func TestGroupChangesWithMembers(t *testing.T) {
	db, pods, zones := newPods()
	commit := func(write func(tx *Txn)) int {
		tx := db.Begin()
		write(tx)
		_, touched := tx.Commit()
		return len(touched)
	}
	commit(func(tx *Txn) { pods.Set(tx, "a", pod{"web", "z1"}); pods.Set(tx, "b", pod{"web", "z1"}) })
	if n := commit(func(tx *Txn) { pods.Delete(tx, "b") }); n != 1 {
		t.Errorf("one of two contributors left: %d leaves touched, want the row only", n)
	}
	if n := commit(func(tx *Txn) { pods.Set(tx, "a", pod{"web", "z2"}) }); n != 2 {
		t.Errorf("the last contributor moved: %d leaves touched, want the row and the group", n)
	}
	r := &recorder{}
	if g := zones.Group(r, "web"); g.Len() != 1 || !g.Has("z2") {
		t.Errorf("group has %d members", g.Len())
	}
	if info := db.Describe(r.reads[0]); info.Space != "zones of app" || info.Key != "web" || !info.Present {
		t.Errorf("the read leaf is %+v", info)
	}
}

// TestAbsentLeaves checks that an absent row or group that was read keeps its ID until it is released, and that its appearance is reported.
func TestAbsentLeaves(t *testing.T) {
	db, pods, zones := newPods()
	r := &recorder{}
	pods.Get(r, "later")
	zones.Group(r, "web")
	tx := db.Begin()
	pods.Set(tx, "later", pod{"web", "z1"})
	_, touched := tx.Commit()
	if len(touched) != 2 || touched[0] != r.reads[0] || touched[1] != r.reads[1] {
		t.Fatalf("touched %v, want the leaves that were read, %v", touched, r.reads)
	}
	tx = db.Begin()
	pods.Delete(tx, "later")
	tx.Commit()
	db.Release(r.reads[0])
	db.Release(r.reads[1])
	rows, groups := pods.(*table[string, pod]).rows.kept.Count(), zones.(*index[string, omap.Name]).groups.kept.Count()
	if rows != 0 || groups != 0 {
		t.Errorf("released leaves are kept: %d rows, %d groups", rows, groups)
	}
}

// TestDeletedRowIsZero checks that a deleted row whose slot is still in use holds no value.
func TestDeletedRowIsZero(t *testing.T) {
	db, pods, _ := newPods()
	tx := db.Begin()
	pods.Set(tx, "a", pod{"web", "z1"})
	tx.Commit()
	tx = db.Begin()
	pods.Delete(tx, "a")
	tx.Commit()
	if p, ok := pods.Get(&recorder{}, "a"); ok || p != (pod{}) {
		t.Errorf("the deleted row reads %+v, %v", p, ok)
	}
}

// TestIndexAgainstScan compares the maintained groups with groups found by scanning, over random histories.
func TestIndexAgainstScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db, pods, zones := newPods()
		for range rapid.IntRange(1, 20).Draw(t, "commits") {
			tx := db.Begin()
			for range rapid.IntRange(0, 5).Draw(t, "writes") {
				name := fmt.Sprint(rapid.IntRange(0, 600).Draw(t, "pod") % 7)
				if rapid.Bool().Draw(t, "delete") {
					pods.Delete(tx, name)
					continue
				}
				pods.Set(tx, name, pod{rapid.SampledFrom([]string{"web", "db"}).Draw(t, "app"), rapid.SampledFrom([]string{"z1", "z2"}).Draw(t, "zone")})
			}
			tx.Commit()
			for _, app := range []string{"web", "db", "none"} {
				kept, scanned := zones.Group(&recorder{}, app), zones.Group(scanner{}, app)
				if kept.Hash() != scanned.Hash() {
					t.Fatalf("group %s has %d members, the rows say %d", app, kept.Len(), scanned.Len())
				}
			}
			n := 0
			for range pods.All() {
				n++
			}
			if n != pods.Len() {
				t.Fatalf("%d rows, Len says %d", n, pods.Len())
			}
		}
	})
}

func TestMisuse(t *testing.T) {
	db, pods, _ := newPods()
	tx := db.Begin()
	mustPanic(t, "two open commits", func() { db.Begin() })
	pods.Set(tx, "a", pod{})
	tx.Commit()
	mustPanic(t, "commit twice", func() { tx.Commit() })
	mustPanic(t, "index over a table with rows", func() {
		NewIndex(pods, "late", func(string, pod, func(string, omap.Name)) {})
	})
}

func mustPanic(t *testing.T, what string, fn func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	fn()
}
