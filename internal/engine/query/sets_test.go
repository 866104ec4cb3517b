package query

import (
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// bundle is an output that is a set.
type bundle struct {
	name string
	set  omap.Map[omap.Name, omap.Unit]
}

func (b bundle) OutputName() string     { return b.name }
func (b bundle) ContentHash() omap.Hash { return b.set.Hash() }
func (bundle) Size() int                { return 0 }

// TestGroupSets: an index over sets has what the naive evaluator has after members come, go and move between sets, and a set that changes costs what
// differs, however large it is.
func TestGroupSets(t *testing.T) {
	db := store.New()
	in := store.NewTable[string](db, "in", same[string]) // the set of each member
	members := store.NewIndex(in, "members", func(k, set string, add func(string, omap.Name)) { add(set, omap.Name(k)) })
	sets := store.NewIndex(in, "sets", func(_, set string, add func(struct{}, omap.Name)) { add(struct{}{}, omap.Name(set)) })
	g := New(db, Options{Strict: true})
	equal := func(a, b []bundle) bool { return len(a) == len(b) && (len(a) == 0 || a[0].set.Equal(b[0].set)) }
	one := Define(g, "bundle", equal, func(r *Reader, k string) ([]bundle, bool) { return []bundle{{k, members.Group(r, k)}}, true })
	all := Each(g, "bundles", func(r *Reader, _ struct{}) omap.Map[omap.Name, omap.Unit] { return sets.Group(r, struct{}{}) }, one,
		func(_ struct{}, k omap.Name) string { return string(k) })
	counted := 0
	by := GroupSets(g, "by member", all, func(b bundle) omap.Map[omap.Name, omap.Unit] { return b.set }, func(b bundle) omap.Name {
		counted++
		return omap.Name(b.name)
	}).(*groups[struct{}, omap.Name, omap.Name])
	var got omap.Map[omap.Name, omap.Unit]
	by.keys.Observe(struct{}{}, func(m omap.Map[omap.Name, omap.Unit], _ bool) { got = m })
	edit := func(name string, want int, write func(tx *store.Txn)) {
		counted = 0
		g.Commit(write)
		for g.Slice(1000) {
		}
		if counted > want {
			t.Errorf("%s: %d members were counted, want at most %d", name, counted, want)
		}
		if want := by.Keys(g.Naive(), struct{}{}); !got.Equal(want) {
			t.Errorf("%s: there are %d groups, want %d", name, got.Len(), want.Len())
		}
		cell, _, _ := by.find(struct{}{})
		for k := range got.All() {
			if is, want := cell.val.groups[k].Members(), by.Group(g.Naive(), struct{}{}, k); !is.Equal(want) {
				t.Errorf("%s: %s is in %v, want %v", name, k, is, want)
			}
		}
	}
	edit("all", 500, func(tx *store.Txn) {
		for i := range 500 {
			in.Set(tx, fmt.Sprint("m", i), fmt.Sprint("s", i%2))
		}
	})
	edit("one comes", 1, func(tx *store.Txn) { in.Set(tx, "more", "s0") })
	edit("one moves", 2, func(tx *store.Txn) { in.Set(tx, "more", "s1") })
	edit("one goes", 1, func(tx *store.Txn) { in.Delete(tx, "m7") })
	edit("one has a set of its own", 2, func(tx *store.Txn) { in.Set(tx, "m8", "own") })
	edit("a set goes", 2, func(tx *store.Txn) { in.Set(tx, "m8", "s1") })
}
