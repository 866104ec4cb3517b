package slab

import "iter"

const pageSize = 256

// keys assigns slots to keys. It does not depend on the type of the items, so that the compiler translates it once for all
// slabs with keys of one form.
type keys[K comparable] struct {
	of   map[K]uint32
	peak int // the largest len(of) since the map was made
	places
}

// places is the part of keys that depends on no type: which slots are free, and how many are in use, by page.
type places struct {
	free []uint32
	used []uint16
}

// Len returns the number of items.
func (x *keys[K]) Len() int { return len(x.of) }

// Find returns the slot of k.
func (x *keys[K]) Find(k K) (n uint32, ok bool) {
	n, ok = x.of[k]
	return n, ok
}

// Slots yields the keys and their slots in no particular order.
func (x *keys[K]) Slots() iter.Seq2[K, uint32] {
	return func(yield func(K, uint32) bool) {
		for k, n := range x.of {
			if !yield(k, n) {
				return
			}
		}
	}
}

func (x *keys[K]) add(k K) (n uint32) {
	if x.of == nil {
		x.of = make(map[K]uint32)
	}
	n = x.take()
	x.of[k] = n
	x.peak = max(x.peak, len(x.of))
	return n
}

func (x *keys[K]) remove(k K) (n uint32, ok bool) {
	n, ok = x.of[k]
	if !ok {
		return 0, false
	}
	delete(x.of, k)
	x.put(n)
	if len(x.of)*4 < x.peak && x.peak > 4*pageSize { // Go maps do not shrink
		of := make(map[K]uint32, len(x.of))
		for k, n := range x.of {
			of[k] = n
		}
		x.of, x.peak = of, len(of)
	}
	return n, true
}

// take returns the slot that was freed last, or the first slot of a new page.
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

func (p *places) put(n uint32) {
	p.free = append(p.free, n)
	p.used[n/pageSize]--
}
