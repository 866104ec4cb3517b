package slab

import (
	"iter"
	"slices"
)

const pageSize = 256

// Pages stores items of type T in numbered slots. Its user assigns the slots, with a Slots or a Slab. The zero Pages is empty.
//
// An item keeps its address until its slot is freed, except that Writable copies the page of an item that a Frozen shares.
type Pages[T any] struct{ list []*page[T] }

type page[T any] struct {
	items [pageSize]T
	// shared reports that a Frozen refers to this page too, so its items must not change.
	shared bool
}

// Frozen is an immutable copy of the items of some Pages. Any goroutine may read it.
type Frozen[T any] struct{ list []*page[T] }

// At returns the item of a slot that is in use. The item must not be written if the pages are ever frozen; see Writable.
func (p *Pages[T]) At(n uint32) *T { return &p.list[n/pageSize].items[n%pageSize] }

// Lookup returns the item of any slot, or nil if the slot's page is not allocated. A free slot can yield a zero item.
func (p *Pages[T]) Lookup(n uint32) *T {
	if int(n/pageSize) >= len(p.list) || p.list[n/pageSize] == nil {
		return nil
	}
	return p.At(n)
}

// Writable returns the item of a slot that is in use, for writing. If a Frozen shares the item's page, the page is copied
// first: the Frozen keeps the old item, and pointers that At returned earlier do not show the change.
func (p *Pages[T]) Writable(n uint32) *T {
	at := p.list[n/pageSize]
	if at.shared {
		at = &page[T]{items: at.items}
		p.list[n/pageSize] = at
	}
	return &at.items[n%pageSize]
}

// Allocate makes a slot that has been assigned ready for use. It returns the slot's item, which is zero.
//
// Allocate and Free are not inlined: they are called rarely, by code that is translated for each pair of types.
//
//go:noinline
func (p *Pages[T]) Allocate(n uint32) *T {
	for int(n/pageSize) >= len(p.list) {
		p.list = append(p.list, nil)
	}
	if p.list[n/pageSize] == nil {
		p.list[n/pageSize] = new(page[T])
	}
	return p.At(n)
}

// Free makes the item of a slot zero. If no slot of its page is in use any longer, the page is freed; if no slot at all is in
// use, everything is.
//
//go:noinline
func (p *Pages[T]) Free(n uint32, left Left) {
	switch left {
	case Nothing:
		p.list = nil
	case NothingInPage:
		p.list[n/pageSize] = nil
	default:
		var none T
		*p.Writable(n) = none
	}
}

// Freeze returns the present items. It costs one pointer per page. The first later change of an item copies the item's page.
func (p *Pages[T]) Freeze() Frozen[T] {
	for _, at := range p.list {
		if at != nil {
			at.shared = true
		}
	}
	return Frozen[T]{slices.Clone(p.list)}
}

// All yields the items in the order of their slots. Free slots yield zero items.
func (p *Pages[T]) All() iter.Seq[*T] { return all(p.list) }

// All yields the items in the order of their slots. Free slots yield zero items.
func (f Frozen[T]) All() iter.Seq[*T] { return all(f.list) }

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
