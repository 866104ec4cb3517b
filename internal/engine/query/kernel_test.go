package query

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

func (w *fixture) finish() {
	for w.g.Slice(500) {
	}
}

// fresh returns the class's state as computed by a new graph over the same rows. It is for fixtures that are too large for the
// naive evaluator, which finds groups by scanning.
func (w *fixture) fresh(class string) (got state) {
	f := newFixture(Options{Strict: true})
	f.g.Commit(func(tx *store.Txn) {
		copyRows(tx, f.services, w.services)
		copyRows(tx, f.endpoints, w.endpoints)
		copyRows(tx, f.rules, w.rules)
		copyRows(tx, f.settings, w.settings)
	})
	f.classes.Observe(class, func(s state, _ bool) { got = s })
	f.finish()
	return got
}

func copyRows[V any](tx *store.Txn, to, from store.Table[string, V]) {
	for k, v := range from.All() {
		to.Set(tx, k, v)
	}
}

// TestColdBuildDoesNotDelay builds a class of 2,000 services in slices while endpoints change. After every commit the complete
// class is up to date; the new class is published once, when it is complete.
func TestColdBuildDoesNotDelay(t *testing.T) {
	w := newFixture(Options{Strict: true, Workers: 2, ParallelFrom: 2})
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 2000, 2) })
	var complete, cold state
	w.classes.Observe("n0", func(s state, _ bool) { complete = s })
	w.finish()

	// The new class has every service in its own overlay, so no cell of its overlay exists yet.
	w.g.Commit(func(tx *store.Txn) {
		for i := range 2000 {
			w.rules.Set(tx, fmt.Sprintf("cold%d", i), rule{Host: fmt.Sprintf("s%d", i), Layer: "n1", Policy: "cold"})
		}
	})
	coldPublished := 0
	w.classes.Observe("n1", func(s state, _ bool) {
		if coldPublished++; coldPublished == 1 && s.overlay.Len() < 2000 {
			t.Fatalf("the new class was published with %d of its resources", s.overlay.Len())
		}
		cold = s
	})
	slices := 0
	for more := true; more; slices++ {
		more = w.g.Slice(100)
		value := fmt.Sprintf("v%d", slices)
		w.g.Commit(func(tx *store.Txn) { w.endpoints.Set(tx, "s9", value) })
		if got, _ := complete.base.Get("s9"); !strings.HasSuffix(got.body, value) {
			t.Fatalf("slice %d: the complete class has %q after a commit of %q", slices, got.body, value)
		}
		if coldPublished == 0 {
			if ran := w.g.Cost(); ran["cluster"] > 2 {
				t.Fatalf("the commit ran %v: it included the cold build", ran)
			}
		}
	}
	if slices < 20 {
		t.Fatalf("the cold build took %d slices: it was not interrupted", slices)
	}
	if want := w.fresh("n1"); !cold.equal(want) {
		t.Fatalf("the cold class differs from a fresh graph's")
	}
	if err := w.g.CheckEdges(); err != nil {
		t.Fatal(err)
	}
}

// TestPromotion makes a complete class depend on a collection whose first build has started and is not complete.
func TestPromotion(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) {
		w.fill(tx, 300, 0)
		w.services.Set(tx, "quiet", service{Layer: "n0"})
	})
	var got state
	w.classes.Observe("n0", func(s state, _ bool) { got = s }) // n0 has a service named "quiet", so it does not read the problems
	w.finish()
	w.problems.Observe("", func(omap.Map[omap.Name, text]) {})
	w.g.Slice(10) // starts to build the problems of 300 services
	w.g.Commit(func(tx *store.Txn) {
		w.services.Delete(tx, "quiet")
		w.services.Set(tx, "s0", service{VIP: "10.0.0.1"})
	})
	want, _ := w.classes.Get(w.g.Naive(), "n0")
	if got.claimed.Len() == 0 || got.problems.Len() < 200 || !got.equal(want) {
		t.Fatalf("after the commit the class is\n %v\nwant\n %v", got, want)
	}
	w.finish()
	if err := w.g.CheckEdges(); err != nil {
		t.Fatal(err)
	}
}

func TestPanicKeepsLastGood(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 20, 0) })
	var got state
	w.classes.Observe("n0", func(s state, _ bool) { got = s })
	w.finish()
	good, _ := got.base.Get("s10")

	w.g.Commit(func(tx *store.Txn) {
		w.rules.Set(tx, "bad", rule{Host: "s10", Policy: "panic"})
		w.endpoints.Set(tx, "s11", "flows")
	})
	if now, _ := got.base.Get("s10"); now != good {
		t.Errorf("the broken rule's cluster is %q, want the last good %q", now.body, good.body)
	}
	if now, _ := got.base.Get("s11"); !strings.HasSuffix(now.body, "flows") {
		t.Errorf("another service's change did not arrive: %q", now.body)
	}
	f := w.g.Faults()
	if len(f) == 0 || !f[0].Kept || !strings.Contains(f[0].Reason, "a rule that breaks its query") || !strings.Contains(f[0].Key, "s10") {
		t.Errorf("failures: %+v", f)
	}
	// Only the row changes that was read just before the panic.
	w.g.Commit(func(tx *store.Txn) { w.rules.Set(tx, "bad", rule{Host: "s10", Policy: "mended"}) })
	if now, _ := got.base.Get("s10"); !strings.Contains(now.body, "mended") || len(w.g.Faults()) != 0 {
		t.Errorf("after the rule was mended: %q, failures %v", now.body, w.g.Faults())
	}
}

func TestPanicWithoutLastGoodIsAbsent(t *testing.T) {
	w := newFixture(Options{Strict: true})
	w.g.Commit(func(tx *store.Txn) {
		w.fill(tx, 20, 0)
		w.rules.Set(tx, "bad", rule{Host: "s3", Policy: "panic"})
	})
	var got state
	w.classes.Observe("n0", func(s state, _ bool) { got = s })
	w.finish()
	if now, _ := got.base.Get("s3"); !strings.Contains(now.body, "[]") {
		t.Errorf("a cluster with a rule that never evaluated: %q, want it without policy", now.body)
	}
	if f := w.g.Faults(); len(f) != 1 || f[0].Kept || f[0].Kind != Panicked {
		t.Errorf("failures: %+v", f)
	}
	w.g.Commit(func(tx *store.Txn) { w.rules.Delete(tx, "bad") })
	if len(w.g.Faults()) != 0 {
		t.Errorf("failures after the rule is gone: %v", w.g.Faults())
	}
}

func TestRules(t *testing.T) {
	db := store.New()
	rows := store.NewTable[string](db, "rows", same[string])
	g := New(db, Options{Strict: true})
	var upper Query[string, string]
	lower := Define(g, "lower", same[string], func(r *Reader, k string) (string, bool) { return upper.Get(r, k) })
	upper = Define(g, "upper", same[string], func(r *Reader, k string) (string, bool) { return lower.Get(r, k) })
	greedy := Define(g, "greedy", same[string], func(r *Reader, k string) (string, bool) {
		for i := range readLimit + 1 {
			rows.Get(r, fmt.Sprint(i))
		}
		return "", true
	})
	expect := func(want string, k string, q Query[string, string]) {
		t.Helper()
		defer func() {
			if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
				t.Errorf("got %q, want a panic about %q", p, want)
			}
		}()
		q.Observe(k, func(string, bool) {})
		g.Slice(10)
	}
	expect("lower reads upper", "k", upper)
	expect("reads more than 200", "k", greedy)
	expect("second observer", "k", greedy)
}

// TestNoTornReads writes the revision into every row and checks that each published state contains one revision only.
func TestNoTornReads(t *testing.T) {
	w := newFixture(Options{Strict: true, Workers: 4, ParallelFrom: 1})
	torn := 0
	write := func(n int) {
		w.g.Commit(func(tx *store.Txn) {
			for i := range 40 {
				h := fmt.Sprintf("s%d", i)
				w.services.Set(tx, h, service{VIP: fmt.Sprint(n), Port: n})
				w.endpoints.Set(tx, h, fmt.Sprint(n))
			}
			w.settings.Set(tx, "every cluster", fmt.Sprint(n))
		})
	}
	write(0)
	published := 0
	w.classes.Observe("n0", func(s state, _ bool) {
		published++
		seen := map[string]bool{}
		for k, v := range s.base.All() {
			if !strings.Contains(string(k), "|") {
				seen[v.body] = true
			}
		}
		if len(seen) != 1 || s.vips.Len() != 1 {
			torn++
		}
	})
	w.finish()
	for n := range 50 {
		write(n + 1)
		w.g.Slice(3)
	}
	if torn > 0 || published < 50 {
		t.Fatalf("%d of %d states mix revisions", torn, published)
	}
}

// TestLargeColdBuildInParallel is for the race detector. A large first build with many workers finds races that a random test
// with few cells does not find.
func TestLargeColdBuildInParallel(t *testing.T) {
	w := newFixture(Options{Strict: true, Workers: 4, ParallelFrom: 2})
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 2000, 80) })
	got := map[string]state{}
	for i := range 80 {
		class := fmt.Sprintf("n%d", i)
		w.classes.Observe(class, func(s state, _ bool) { got[class] = s })
	}
	w.finish()
	w.g.Commit(func(tx *store.Txn) { w.settings.Set(tx, "every cluster", "set") })
	if err := w.g.CheckEdges(); err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"n0", "n79"} {
		if want := w.fresh(class); !got[class].equal(want) {
			t.Fatalf("class %s differs from a fresh graph's", class)
		}
	}
}

// TestDeterminism reaches equal rows through different histories, orders and numbers of workers. The expected hash is a
// constant, so that it is also the same in every process.
func TestDeterminism(t *testing.T) {
	const want = "398fbc74ba015ff7"
	for seed, workers := range []int{1, 1, 4, 4} {
		w := newFixture(Options{Strict: true, Workers: workers, ParallelFrom: 1})
		var got state
		w.classes.Observe("n1", func(s state, _ bool) { got = s })
		rnd := rand.New(rand.NewPCG(uint64(seed), 1))
		if seed%2 == 1 { // another history
			w.g.Commit(func(tx *store.Txn) { w.fill(tx, 400, 7) })
			w.finish()
			w.g.Commit(func(tx *store.Txn) {
				for i := 200; i < 400; i++ {
					w.services.Delete(tx, fmt.Sprintf("s%d", i))
				}
				for i := range 7 {
					w.rules.Delete(tx, fmt.Sprintf("own%d", i))
				}
			})
		}
		for _, i := range rnd.Perm(200) {
			w.g.Commit(func(tx *store.Txn) {
				w.services.Set(tx, fmt.Sprintf("s%d", i), service{VIP: fmt.Sprintf("10.0.0.%d", i%7), Port: i % 4})
				w.endpoints.Set(tx, fmt.Sprintf("s%d", i), "e")
			})
		}
		w.g.Commit(func(tx *store.Txn) {
			for i := 0; i < 400; i += 10 {
				w.rules.Delete(tx, fmt.Sprintf("rs%d", i))
			}
			w.rules.Set(tx, "own", rule{Host: "s3", Layer: "n1", Policy: "own"})
		})
		w.finish()
		if h := fmt.Sprintf("%x", got.hash())[:16]; h != want {
			t.Errorf("seed %d, %d workers: state hash %s, want %s", seed, workers, h, want)
		}
	}
}

// TestMemory limits the memory of a cell, and the memory that remains when all classes have been removed.
func TestMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w := newFixture(Options{})
	w.g.Commit(func(tx *store.Txn) { w.fill(tx, 10_000, 20) })
	rows := heap()
	var release []func()
	for i := range 20 {
		release = append(release, w.classes.Observe(fmt.Sprintf("n%d", i), func(state, bool) {}))
	}
	w.finish()
	cells := 0
	for _, n := range w.g.Cells() {
		cells += n
	}
	perCell := float64(heap()-rows) / float64(cells)
	t.Logf("%d cells, %.0f bytes each with all that hangs on them", cells, perCell)
	if perCell > 500 {
		t.Errorf("%.0f bytes per cell", perCell)
	}
	for _, r := range release {
		r()
	}
	w.finish()
	left := heap()
	t.Logf("rows %d KB, after all classes left %d KB", rows>>10, left>>10)
	if n := w.g.Cells(); len(n) > 0 || left > rows+rows/10 {
		t.Errorf("left behind: cells %v, %d KB beside the rows' %d KB", n, (left-rows)>>10, rows>>10)
	}
	runtime.KeepAlive(w)
}

// TestManyUsers adds and removes users of a set that has many, in random order.
func TestManyUsers(t *testing.T) {
	var s userSet
	want := map[store.ID]bool{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 40_000 {
		u, growing := store.ID(rnd.IntN(3*manyUsers)), i/5_000%2 == 0
		if want[u] == growing {
			continue // it becomes full and empty by turns
		}
		if want[u] {
			s.remove(u)
			delete(want, u)
		} else {
			s.add(u)
			want[u] = true
		}
		if s.has(u) != want[u] || s.none() != (len(want) == 0) {
			t.Fatalf("user %d: %t, want %t; none: %t, want %d", u, s.has(u), want[u], s.none(), len(want))
		}
	}
	got := map[store.ID]bool{}
	for u := range s.all() {
		got[u] = true
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%d users, want %d", len(got), len(want))
	}
}
