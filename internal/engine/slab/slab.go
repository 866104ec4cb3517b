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

const pageSize = 256

// Slab stores items of type T under keys of type K. The zero Slab is empty.
type Slab[K comparable, T any] struct {
	of    map[K]uint32
	peak  int // the largest len(of) since the map was made
	pages []*page[T]
	free  []uint32
}

type page[T any] struct {
	items [pageSize]T
	used  int
	// shared reports that a Frozen refers to this page too, so its items must not change.
	shared bool
}

// Frozen is an immutable copy of a slab's content. Any goroutine may read it.
type Frozen[T any] struct{ pages []*page[T] }

// Len returns the number of items.
func (s *Slab[K, T]) Len() int { return len(s.of) }

// Find returns the slot of k.
func (s *Slab[K, T]) Find(k K) (n uint32, ok bool) {
	n, ok = s.of[k]
	return n, ok
}

// At returns the item of a slot that is in use. The item must not be written if the slab is ever frozen; see Writable.
func (s *Slab[K, T]) At(n uint32) *T { return &s.pages[n/pageSize].items[n%pageSize] }

// Writable returns the item of a slot that is in use, for writing. If a Frozen shares the item's page, the page is copied
// first: the Frozen keeps the old item, and pointers that At returned earlier do not show the change.
func (s *Slab[K, T]) Writable(n uint32) *T {
	p := s.pages[n/pageSize]
	if p.shared {
		p = &page[T]{items: p.items, used: p.used}
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

// Slots yields the keys and their slots in no particular order.
func (s *Slab[K, T]) Slots() iter.Seq2[K, uint32] {
	return func(yield func(K, uint32) bool) {
		for k, n := range s.of {
			if !yield(k, n) {
				return
			}
		}
	}
}

// Add assigns a slot to k, which must have none. The item is zero.
func (s *Slab[K, T]) Add(k K) (n uint32) {
	if s.of == nil {
		s.of = make(map[K]uint32)
	}
	n = s.take()
	s.of[k] = n
	s.peak = max(s.peak, len(s.of))
	return n
}

// take returns the slot that was freed last, or the first slot of a new page.
func (s *Slab[K, T]) take() uint32 {
	if len(s.free) == 0 {
		first := uint32(len(s.pages) * pageSize)
		s.pages = append(s.pages, nil)
		for i := uint32(pageSize); i > 0; i-- {
			s.free = append(s.free, first+i-1)
		}
	}
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	if s.pages[n/pageSize] == nil {
		s.pages[n/pageSize] = new(page[T])
	}
	s.pages[n/pageSize].used++
	return n
}

// Drop deletes the item of k, if there is one, and frees its slot.
func (s *Slab[K, T]) Drop(k K) {
	n, ok := s.of[k]
	if !ok {
		return
	}
	delete(s.of, k)
	s.free = append(s.free, n)
	var none T
	*s.Writable(n) = none
	p := s.pages[n/pageSize]
	if p.used--; p.used == 0 {
		s.pages[n/pageSize] = nil
	}
	switch {
	case len(s.of) == 0:
		*s = Slab[K, T]{}
	case len(s.of)*4 < s.peak && s.peak > 4*pageSize: // Go maps do not shrink
		of := make(map[K]uint32, len(s.of))
		for k, n := range s.of {
			of[k] = n
		}
		s.of, s.peak = of, len(of)
	}
}
