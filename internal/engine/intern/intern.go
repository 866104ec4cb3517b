// Package intern makes lists that can be parts of keys: two lists with equal items are equal under ==.
//
// A key of a query must be comparable, and a Go slice is not. Such a key would otherwise be serialised to a string, and
// parsed again by each reader that needs its items. Here equal lists are one list in memory, so that a list takes one
// word in a key and is compared in one instruction.
//
// Invariants: a list never changes; lists with equal items in equal order are ==; the memory of a list without
// references is returned, by the standard library's package unique. The package starts no goroutines.
package intern

import (
	"fmt"
	"iter"
	"strings"
	"unique"
)

// List is an immutable list of items. The zero List is empty.
//
// It is a chain of links. Each link names the rest of the list by its canonical handle: that makes a link comparable,
// as package unique demands.
type List[T comparable] struct{ first unique.Handle[link[T]] }

type link[T comparable] struct {
	item T
	rest List[T]
}

// Of is the list of some items, in their order. For a set, the caller sorts the items first, so that equal sets are equal lists.
func Of[T comparable](items ...T) List[T] {
	var l List[T]
	for i := len(items) - 1; i >= 0; i-- {
		l = List[T]{unique.Make(link[T]{items[i], l})}
	}
	return l
}

// Empty reports whether there are no items.
func (l List[T]) Empty() bool { return l == List[T]{} }

// All yields the items in order.
func (l List[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for !l.Empty() {
			at := l.first.Value()
			if !yield(at.item) {
				return
			}
			l = at.rest
		}
	}
}

// Items are the items in order, in a slice of the caller's own; nil if there are none.
func (l List[T]) Items() []T {
	var items []T
	for item := range l.All() {
		items = append(items, item)
	}
	return items
}

// Has reports whether an item is in the list.
func (l List[T]) Has(want T) bool {
	for item := range l.All() {
		if item == want {
			return true
		}
	}
	return false
}

// Keep returns the list of the items of l for which keep returns true. It is a function, because the compiler translates the methods of a List in each
// package that can see a value of it, and this one needs all of the package unique.
func Keep[T comparable](l List[T], keep func(T) bool) List[T] {
	var kept []T
	for item := range l.All() {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return Of(kept...)
}

// String shows the items, separated by commas. It is for people: an item may contain a comma.
func (l List[T]) String() string {
	var b strings.Builder
	for item := range l.All() {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, item)
	}
	return b.String()
}
