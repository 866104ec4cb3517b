// Package slab keeps items under keys in numbered slots.
//
// An item stays where it is, and keeps its number, until it is dropped; then its slot is given out again. Slots lie in
// pages that are made when they are needed and let go when they are empty, so that what is kept follows how many items
// there are. Nobody may read a slab while somebody changes it. It starts no goroutines and imports nothing of this project.
package slab

import (
	"iter"
	"slices"
)

const pageSize = 256

// Slab holds items of type T under keys of type K. The zero Slab is empty.
type Slab[K comparable, T any] struct {
	of    map[K]uint32
	peak  int // largest len(of) since the map was last made
	pages []*page[T]
	free  []uint32
}

type page[T any] struct {
	items [pageSize]T
	used  int
	// shared pages are a Frozen's too: their items do not change any more.
	shared bool
}

// Frozen is what a slab held at one moment. Any goroutine may read it.
type Frozen[T any] struct{ pages []*page[T] }

// Len is the number of items.
func (s *Slab[K, T]) Len() int { return len(s.of) }

// Find returns k's slot.
func (s *Slab[K, T]) Find(k K) (n uint32, ok bool) {
	n, ok = s.of[k]
	return n, ok
}

// At is the item of a slot that is taken. Of a slab that is ever frozen it is to be read only.
func (s *Slab[K, T]) At(n uint32) *T { return &s.pages[n/pageSize].items[n%pageSize] }

// Own is the item of a slot that is taken, to be changed: what is frozen keeps the item as it was. Pointers that At gave
// before do not show the change.
func (s *Slab[K, T]) Own(n uint32) *T {
	p := s.pages[n/pageSize]
	if p.shared {
		p = &page[T]{items: p.items, used: p.used}
		s.pages[n/pageSize] = p
	}
	return &p.items[n%pageSize]
}

// Freeze returns what the slab holds now. It costs one pointer per page; a page is copied when an item of it changes next.
func (s *Slab[K, T]) Freeze() Frozen[T] {
	for _, p := range s.pages {
		if p != nil {
			p.shared = true
		}
	}
	return Frozen[T]{slices.Clone(s.pages)}
}

// All yields the items by slot, and zero ones of free slots among them.
func (f Frozen[T]) All() iter.Seq[*T] { return all(f.pages) }

// Get is the item of any slot, nil if there is none. That of a free slot may be a zero one.
func (s *Slab[K, T]) Get(n uint32) *T {
	if int(n/pageSize) >= len(s.pages) || s.pages[n/pageSize] == nil {
		return nil
	}
	return s.At(n)
}

// All yields the items by slot, and zero ones of free slots among them.
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

// Add takes a slot for k, which has none. Its item is zero.
func (s *Slab[K, T]) Add(k K) (n uint32) {
	if s.of == nil {
		s.of = make(map[K]uint32)
	}
	n = s.take()
	s.of[k] = n
	s.peak = max(s.peak, len(s.of))
	return n
}

// take is the free slot that was freed last, or the first one of a new page.
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

// Drop frees k's slot.
func (s *Slab[K, T]) Drop(k K) {
	n, ok := s.of[k]
	if !ok {
		return
	}
	delete(s.of, k)
	s.free = append(s.free, n)
	var none T
	*s.Own(n) = none
	p := s.pages[n/pageSize]
	if p.used--; p.used == 0 {
		s.pages[n/pageSize] = nil
	}
	switch {
	case len(s.of) == 0:
		*s = Slab[K, T]{}
	case len(s.of)*4 < s.peak && s.peak > 4*pageSize: // maps do not shrink
		of := make(map[K]uint32, len(s.of))
		for k, n := range s.of {
			of[k] = n
		}
		s.of, s.peak = of, len(of)
	}
}
