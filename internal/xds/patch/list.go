package patch

import (
	"errors"
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
)

// placed is an operation that puts a value into an ordered list, replaces an item of it, or removes items.
type placed[T any] struct {
	op networking.EnvoyFilter_Patch_Operation
	// named is true if the patch selects items, and selects reports which ones.
	named   bool
	selects func(T) bool
	value   func() T
	// add is where an added item goes in a list.
	add func(list []T) int
	// firstAnyway is true if INSERT_FIRST needs no selected item.
	firstAnyway bool
}

// apply returns the list after the operation; ok is false if the patch selects nothing.
func (p placed[T]) apply(list []T) (out []T, ok bool) {
	at := len(list)
	if p.selecting() {
		if at = slices.IndexFunc(list, p.selects); at < 0 {
			return list, false
		}
	}
	switch p.op {
	case networking.EnvoyFilter_Patch_ADD:
		return slices.Insert(list, p.add(list), p.value()), true
	case networking.EnvoyFilter_Patch_INSERT_FIRST:
		return slices.Insert(list, 0, p.value()), true
	case networking.EnvoyFilter_Patch_INSERT_BEFORE:
		if !p.named {
			at = 0
		}
		return slices.Insert(list, at, p.value()), true
	case networking.EnvoyFilter_Patch_INSERT_AFTER:
		if !p.named {
			at = p.add(list) - 1
		}
		return slices.Insert(list, at+1, p.value()), true
	case networking.EnvoyFilter_Patch_REPLACE:
		if p.named {
			list[at] = p.value()
		}
		return list, p.named
	case networking.EnvoyFilter_Patch_REMOVE:
		if !p.named {
			return list, false
		}
		return slices.DeleteFunc(list, p.selects), true
	}
	return list, false
}

// selecting reports whether the operation needs a selected item.
func (p placed[T]) selecting() bool {
	return p.named && !(p.firstAnyway && p.op == networking.EnvoyFilter_Patch_INSERT_FIRST)
}

// placeIn applies an operation to a list. A patch with a flaw fails if it is about the list at all.
func placeIn[T any](r *run, i int, of placed[T], list []T) []T {
	if r.patches[i].Flaw != "" {
		if !of.selecting() || slices.ContainsFunc(list, of.selects) {
			r.do(i, nil)
		}
		return list
	}
	out, ok := of.apply(list)
	if ok {
		r.do(i, func() error { return nil })
	}
	return out
}

// atEnd puts added items behind all others.
func atEnd[T any](list []T) int { return len(list) }

// valueOf returns the value of a patch as a message of a type.
func valueOf[M any](p *Patch) (m M, err error) {
	m, ok := p.value.(M)
	if !ok {
		return m, fmt.Errorf("the operation %s needs a value", p.op)
	}
	return m, nil
}

// errNoOperation means that an object cannot be changed in this way.
var errNoOperation = errors.New("the operation does not exist for this object")
