package slab

import (
	"testing"

	"pgregory.net/rapid"
)

// held is an entry of the model: the slot, the address and the value of an item.
type held struct {
	slot uint32
	item *int
	val  int
}

// compare checks that a slab finds and lists what the model has, where it was put.
func compare(t *rapid.T, s *Slab[int, int], model map[int]held) {
	for k, h := range model {
		if n, ok := s.Find(k); !ok || n != h.slot || s.At(n) != h.item || s.Lookup(n) != h.item || *h.item != h.val {
			t.Fatalf("%d is at slot %d (%v), want %d of slot %d where it was", k, n, ok, h.val, h.slot)
		}
	}
	for k, n := range s.Each() {
		if model[k].slot != n {
			t.Fatalf("%d has slot %d, want %d", k, n, model[k].slot)
		}
	}
	sum := 0
	for p := range s.All() {
		sum += *p
	}
	for _, h := range model {
		sum -= h.val
	}
	if sum != 0 {
		t.Fatalf("all items are %d too much together", sum)
	}
}

// TestAgainstMap compares a slab with a map over random sequences of Add and Drop: items keep their slots and addresses, and
// dropped items leave nothing behind.
func TestAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Slab[int, int]
		model := map[int]held{}
		wide := rapid.IntRange(1, 4*pageSize).Draw(t, "keys")
		for range rapid.IntRange(1, 8*pageSize).Draw(t, "steps") {
			k := rapid.IntRange(0, wide).Draw(t, "key")
			h, ok := model[k]
			switch {
			case ok:
				s.Drop(k)
				delete(model, k)
				if p := s.Lookup(h.slot); p != nil && *p != 0 {
					t.Fatalf("slot %d is free and holds %d", h.slot, *p)
				}
			default:
				h = held{slot: s.Add(k), val: k + 1}
				h.item = s.At(h.slot)
				if *h.item != 0 {
					t.Fatalf("a new item is %d", *h.item)
				}
				*h.item = h.val
				model[k] = h
			}
		}
		s.Drop(-1)
		if s.Count() != len(model) {
			t.Fatalf("%d items, want %d", s.Count(), len(model))
		}
		compare(t, &s, model)
		for k := range model {
			s.Drop(k)
		}
		if s.Count() != 0 || s.list != nil || s.free != nil || s.of != nil {
			t.Fatalf("an empty slab keeps %d pages", len(s.list))
		}
	})
}

// TestFreesMemory checks that pages and the map are freed when most items have been dropped.
func TestFreesMemory(t *testing.T) {
	var s Slab[int, [64]byte]
	const n = 64 * pageSize
	for k := range n {
		s.Add(k)
	}
	for k := range n - 1 {
		s.Drop(k)
	}
	pages := 0
	for _, p := range s.list {
		if p != nil {
			pages++
		}
	}
	if pages != 1 || s.peak > 4*pageSize {
		t.Errorf("one item takes %d pages and a map of %d", pages, s.peak)
	}
}
