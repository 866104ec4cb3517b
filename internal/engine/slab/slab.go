// Package slab stores items under keys in numbered slots.
//
// The package owns the assignment of slots to keys. Invariants: an item keeps its slot until it is dropped; the slot is then
// reused for another key. An item also keeps its address until it is dropped, except that Writable copies the page of an
// item that a Frozen shares. Slots lie in pages of 256 items. A page is allocated when its first slot is needed and freed
// when its last item is dropped, so that memory follows the number of items.
//
// Goroutines: the package starts none. A Slab must not be read while it is changed; a Frozen may be read by any goroutine.
package slab

import (
	"iter"
	"slices"
)

// Slab stores items of type T under keys of type K. The zero Slab is empty.
type Slab[K comparable, T any] struct {
	keys[K]
	pages []*page[T] // by number; nil while no slot of the page is in use
}

type page[T any] struct {
	items [pageSize]T
	// shared reports that a Frozen refers to this page too, so its items must not change.
	shared bool
}

// Frozen is an immutable copy of a slab's content. Any goroutine may read it.
type Frozen[T any] struct{ pages []*page[T] }

// At returns the item of a slot that is in use. The item must not be written if the slab is ever frozen; see Writable.
func (s *Slab[K, T]) At(n uint32) *T { return &s.pages[n/pageSize].items[n%pageSize] }

// Writable returns the item of a slot that is in use, for writing. If a Frozen shares the item's page, the page is copied
// first: the Frozen keeps the old item, and pointers that At returned earlier do not show the change.
func (s *Slab[K, T]) Writable(n uint32) *T {
	p := s.pages[n/pageSize]
	if p.shared {
		p = &page[T]{items: p.items}
		s.pages[n/pageSize] = p
	}
	return &p.items[n%pageSize]
}

// Freeze returns the present content of the slab. It costs one pointer per page. The first later change of an item copies
// the item's page.
func (s *Slab[K, T]) Freeze() Frozen[T] {
	for _, p := range s.pages {
		if p != nil {
			p.shared = true
		}
	}
	return Frozen[T]{slices.Clone(s.pages)}
}

// All yields the items in the order of their slots. Free slots yield zero items.
func (f Frozen[T]) All() iter.Seq[*T] { return all(f.pages) }

// Get returns the item of any slot, or nil if the slot's page is not allocated. A free slot can yield a zero item.
func (s *Slab[K, T]) Get(n uint32) *T {
	if int(n/pageSize) >= len(s.pages) || s.pages[n/pageSize] == nil {
		return nil
	}
	return s.At(n)
}

// All yields the items in the order of their slots. Free slots yield zero items.
func (s *Slab[K, T]) All() iter.Seq[*T] { return all(s.pages) }

func all[T any](pages []*page[T]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, p := range pages {
			if p == nil {
				continue
			}
			for i := range p.items {
				if !yield(&p.items[i]) {
					return
				}
			}
		}
	}
}

// Add assigns a slot to k, which must have none. The item is zero.
func (s *Slab[K, T]) Add(k K) (n uint32) {
	n = s.add(k)
	p := int(n / pageSize)
	if p == len(s.pages) {
		s.pages = append(s.pages, nil)
	}
	if s.pages[p] == nil {
		s.pages[p] = new(page[T])
	}
	return n
}

// Drop deletes the item of k, if there is one, and frees its slot.
func (s *Slab[K, T]) Drop(k K) {
	n, ok := s.remove(k)
	if !ok {
		return
	}
	if len(s.of) == 0 {
		*s = Slab[K, T]{}
		return
	}
	var none T
	*s.Writable(n) = none
	if s.used[n/pageSize] == 0 {
		s.pages[n/pageSize] = nil
	}
}
