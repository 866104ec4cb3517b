package intern

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type port struct {
	number uint32
	name   string
}

// TestEqualListsAreOne compares lists as keys with lists as slices.
func TestEqualListsAreOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		items := rapid.SliceOfN(rapid.SampledFrom([]port{{1, "a"}, {1, "b"}, {2, "a,b"}, {}}), 0, 4)
		a, b := items.Draw(rt, "a"), items.Draw(rt, "b")
		if got, want := Of(a...) == Of(b...), slices.Equal(a, b); got != want {
			rt.Fatalf("%v == %v: %t", a, b, got)
		}
		l := Of(a...)
		if !slices.Equal(l.Items(), a) || l.Empty() != (len(a) == 0) {
			rt.Fatalf("%v became %v", a, l.Items())
		}
		odd := func(p port) bool { return p.number == 1 }
		if want := slices.DeleteFunc(slices.Clone(a), func(p port) bool { return !odd(p) }); Keep(l, odd) != Of(want...) {
			rt.Fatalf("%v: kept %v, want %v", a, Keep(l, odd), want)
		}
		for _, p := range b {
			if l.Has(p) != slices.Contains(a, p) {
				rt.Fatalf("%v has %v: %t", a, p, l.Has(p))
			}
		}
	})
}

// TestMemoryIsReturned makes lists without keeping references.
func TestMemoryIsReturned(t *testing.T) {
	heap := func() uint64 {
		for range 4 { // links are released from the first to the last, one per collection or more
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	fill := func(round int) {
		for i := range 20_000 {
			Of(fmt.Sprintf("%d-%d", round, i), "b")
		}
	}
	fill(0)
	before := heap()
	for round := range 5 {
		fill(round + 1)
	}
	if after := heap(); after > before+4<<20 { // kept, they would take about 15 MB
		t.Errorf("100,000 lists left %d bytes", after-before)
	}
}

func ExampleOf() {
	type key struct {
		namespace string
		labels    List[string]
	}
	classes := map[key]int{}
	for _, labels := range [][]string{{"app=web", "v=1"}, {"app=web", "v=2"}, {"app=web", "v=1"}} {
		classes[key{"shop", Of(labels...)}]++
	}
	fmt.Println(len(classes), classes[key{"shop", Of("app=web", "v=1")}])
	fmt.Println(Of("app=web", "v=1"))
	// Output:
	// 2 2
	// app=web,v=1
}
