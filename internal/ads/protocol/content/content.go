// Package content has the operations on lists of resources: it joins them, and computes the versions of State-of-the-World responses.
//
// A State-of-the-World version identifies everything that the client has of a type. It is the sum, modulo 2^128, of one
// hash per resource. So a change costs only what changed, equal content has an equal version on every stream and replica,
// and the order does not matter. The version is only for people to read; the protocol does not depend on it.
//
// The package starts no goroutines.
package content

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Known reports whether the content of the resource is known, and not only its name.
func Known(r *resource.Resource) bool { return r.Size() > 0 }

// Term is the hash of one resource.
func Term(r *resource.Resource) omap.Hash {
	h := r.ContentHash()
	return omap.Sum([]byte(r.Name()), []byte{0}, h[:])
}

// Sum is the sum of the terms of resources.
func Sum(list iter.Seq[*resource.Resource]) (h omap.Hash) {
	for r := range list {
		h = Add(h, Term(r))
	}
	return h
}

// Add adds two sums.
func Add(a, b omap.Hash) (c omap.Hash) {
	lo, carry := bits.Add64(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:]), 0)
	hi, _ := bits.Add64(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8]), carry)
	binary.BigEndian.PutUint64(c[8:], lo)
	binary.BigEndian.PutUint64(c[:8], hi)
	return c
}

// Subtract subtracts a sum.
func Subtract(a, b omap.Hash) (c omap.Hash) {
	lo, borrow := bits.Sub64(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:]), 0)
	hi, _ := bits.Sub64(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8]), borrow)
	binary.BigEndian.PutUint64(c[8:], lo)
	binary.BigEndian.PutUint64(c[:8], hi)
	return c
}

// Merged joins two lists that are in name order. If both contain a name, it takes the resource of a.
func Merged(a, b []*resource.Resource) []*resource.Resource {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	list := make([]*resource.Resource, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch d := strings.Compare(a[0].Name(), b[0].Name()); {
		case d < 0:
			list, a = append(list, a[0]), a[1:]
		case d > 0:
			list, b = append(list, b[0]), b[1:]
		default:
			list, a, b = append(list, a[0]), a[1:], b[1:]
		}
	}
	return append(append(list, a...), b...)
}

// OrderListeners puts the listeners that a client has, by the state it was sent, before new ones; it does nothing for other types. Envoy takes them one
// after the other, and refuses a listener at an address that another one leaves later in the same response (envoy,
// ListenerManagerImpl::setNewOrDrainingSocketFactory). Listeners that are removed leave theirs first.
func OrderListeners(list []*resource.Resource, t resource.Type, had *resource.State) {
	if t != resource.Listener || had == nil {
		return
	}
	added := func(r *resource.Resource) int {
		if _, ok := had.Get(t, r.Name()); ok {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b *resource.Resource) int { return added(a) - added(b) })
}
