// Package slab stores items under keys in numbered slots.
//
// The package owns the assignment of slots to keys. Invariants: an item keeps its slot until it is dropped; the slot is then
// reused for another key. Slots lie in pages of 256 items. A page is allocated when its first slot is needed and freed when its
// last item is dropped, so that memory follows the number of items.
//
// Slots depends on the type of the keys only, and Pages on the type of the items only. So the compiler translates each of them
// once for each form of type, and not for each pair of types.
//
// Goroutines: the package starts none. Nothing here may be read while it is changed, except a Frozen, which any goroutine may
// read.
package slab

// Slab stores items of type T under keys of type K. The zero Slab is empty.
type Slab[K comparable, T any] struct {
	Slots[K]
	Pages[T]
}

// Add assigns a slot to k, which must have none. The item is zero.
func (s *Slab[K, T]) Add(k K) (n uint32) {
	n = s.Assign(k)
	s.Allocate(n)
	return n
}

// Drop deletes the item of k, if there is one, and frees its slot.
func (s *Slab[K, T]) Drop(k K) {
	if n, left, ok := s.Unassign(k); ok {
		s.Free(n, left)
	}
}
