package slab

import "iter"

// Slots assigns slots to keys. The zero Slots is empty.
type Slots[K comparable] struct {
	of   map[K]uint32
	peak int // the largest len(of) since the map was made
	places
}

// Left describes the slots that are in use after one of them has been freed.
type Left uint8

// The cases of Left.
const (
	Something     Left = iota // slots of the same page are in use
	NothingInPage             // slots of other pages are in use
	Nothing                   // no slot is in use
)

// Count returns the number of keys.
func (s *Slots[K]) Count() int { return len(s.of) }

// Find returns the slot of k.
func (s *Slots[K]) Find(k K) (n uint32, ok bool) {
	n, ok = s.of[k]
	return n, ok
}

// Each yields the keys and their slots in no particular order.
func (s *Slots[K]) Each() iter.Seq2[K, uint32] {
	return func(yield func(K, uint32) bool) {
		for k, n := range s.of {
			if !yield(k, n) {
				return
			}
		}
	}
}

// Assign assigns a slot to k, which must have none: the slot that was freed last, or the first slot of a new page.
func (s *Slots[K]) Assign(k K) (n uint32) {
	if s.of == nil {
		s.of = make(map[K]uint32)
	}
	n = s.take()
	s.of[k] = n
	s.peak = max(s.peak, len(s.of))
	return n
}

// Unassign frees the slot of k; ok is false if k has none.
func (s *Slots[K]) Unassign(k K) (n uint32, left Left, ok bool) {
	n, ok = s.of[k]
	if !ok {
		return 0, 0, false
	}
	delete(s.of, k)
	switch {
	case len(s.of) == 0:
		*s = Slots[K]{}
		return n, Nothing, true
	case len(s.of)*4 < s.peak && s.peak > 4*pageSize: // Go maps do not shrink
		of := make(map[K]uint32, len(s.of))
		for k, n := range s.of {
			of[k] = n
		}
		s.of, s.peak = of, len(of)
	}
	return n, s.put(n), true
}

// places is the part of Slots that does not depend on the type of the keys: which slots are free, and how many are in use, by page.
type places struct {
	free []uint32
	used []uint16
}

func (p *places) take() uint32 {
	if len(p.free) == 0 {
		first := uint32(len(p.used) * pageSize)
		p.used = append(p.used, 0)
		for i := uint32(pageSize); i > 0; i-- {
			p.free = append(p.free, first+i-1)
		}
	}
	n := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.used[n/pageSize]++
	return n
}

func (p *places) put(n uint32) Left {
	p.free = append(p.free, n)
	if p.used[n/pageSize]--; p.used[n/pageSize] > 0 {
		return Something
	}
	return NothingInPage
}
